package policy

import (
	"fmt"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tinylet/tinylet/agent/pod"
)

// Policy is the assignment of CPUs to containers. It is not safe for concurrent use.
type Policy struct {
	cpus     Set
	cores    []Set
	reserved Set
	options  Options
	// assigned maps pods and container names to exclusive CPUs. The shared pool is
	// derived from it, so the two cannot disagree.
	assigned map[types.UID]map[string]Set
}

// New returns a Policy without assignments. It returns an error if the topology is
// inconsistent, or if no CPU or an offline CPU is reserved.
func New(t Topology, reserved Set, o Options) (*Policy, error) {
	cores, err := t.cores()
	if err != nil {
		return nil, fmt.Errorf("CPU topology: %w", err)
	}
	if reserved.IsEmpty() {
		return nil, fmt.Errorf("no CPU of %s is reserved: the shared pool could become empty", t.CPUs)
	}
	if !reserved.IsSubsetOf(t.CPUs) {
		return nil, fmt.Errorf("reserved CPUs %s are not all in online CPUs %s", reserved, t.CPUs)
	}
	return &Policy{cpus: t.CPUs, cores: cores, reserved: reserved, options: o, assigned: map[types.UID]map[string]Set{}}, nil
}

// SharedPool returns the CPUs of all containers without exclusive CPUs. It is never
// empty.
func (p *Policy) SharedPool() Set { return p.cpus.Difference(p.exclusive()) }

// Free returns the CPUs that can still be assigned exclusively.
func (p *Policy) Free() Set { return p.SharedPool().Difference(p.reserved) }

// Exclusive returns the exclusive CPUs of the container, and whether it has any.
func (p *Policy) Exclusive(podUID types.UID, container string) (Set, bool) {
	s, ok := p.assigned[podUID][container]
	return s, ok
}

// CPUs returns the CPUs that the container must run on: its exclusive CPUs, or the
// shared pool.
func (p *Policy) CPUs(podUID types.UID, container string) Set {
	if s, ok := p.assigned[podUID][container]; ok {
		return s
	}
	return p.SharedPool()
}

// Allocate assigns the exclusive CPUs that the container requests. It does nothing if
// the container requests none or has them already. If it fails it returns an
// *AdmissionError, and nothing has changed.
func (p *Policy) Allocate(in *v1.Pod, c *v1.Container) error {
	asked := RequestedCPUs(in, c)
	if _, has := p.assigned[in.UID][c.Name]; has || asked == 0 {
		return nil
	}
	free := p.Free().Union(p.reusable(in, c.Name))
	if p.options.FullPhysicalCPUs {
		var refused *AdmissionError
		if free, refused = p.wholeCores(free, c.Name, asked); refused != nil {
			return refused
		}
	}
	if asked > int64(free.Size()) {
		return &AdmissionError{Reason: ReasonUnexpected, Message: fmt.Sprintf(
			"container %q requests %d exclusive CPUs, and %s free: of CPUs %s, %s reserved, and other containers hold %s; request fewer, or a fraction of a CPU to run in the shared pool, or delete a pod with exclusive CPUs",
			c.Name, asked, countWithVerb(free), p.cpus, withVerb(p.reserved), orNone(p.exclusive()))}
	}
	p.assign(in.UID, c.Name, pickCPUs(p.cores, free, int(asked)))
	return nil
}

// AllocatePod assigns the exclusive CPUs that the pod's containers request, in their
// start order. If a container is rejected, none gets any.
func (p *Policy) AllocatePod(in *v1.Pod) error {
	var given []string
	for c, kind := range pod.Containers(&in.Spec) {
		if kind == pod.Ephemeral {
			continue
		}
		_, had := p.assigned[in.UID][c.Name]
		if err := p.Allocate(in, c); err != nil {
			for _, name := range given {
				p.unassign(in.UID, name)
			}
			return err
		}
		if !had {
			given = append(given, c.Name)
		}
	}
	return nil
}

// Release frees the exclusive CPUs of the pod's containers and returns them. It does
// nothing for a pod without any.
func (p *Policy) Release(podUID types.UID) Set {
	var freed Set
	for _, s := range p.assigned[podUID] {
		freed = freed.Union(s)
	}
	delete(p.assigned, podUID)
	return freed
}

// reusable returns the CPUs of the pod's containers that never run at the same time
// as this one, without those that a container that does has reused already.
func (p *Policy) reusable(in *v1.Pod, container string) Set {
	var mine, taken Set
	for name, s := range p.assigned[in.UID] {
		if canOverlap(&in.Spec, name, container) {
			taken = taken.Union(s)
		} else {
			mine = mine.Union(s)
		}
	}
	return mine.Difference(taken)
}

// wholeCores returns the CPUs of the cores that are completely free. It rejects a
// request that does not fit into them or is not a whole number of cores
// (enforceSMTAlignment in pkg/kubelet/cm/cpumanager/policy_static.go).
func (p *Policy) wholeCores(free Set, container string, asked int64) (Set, *AdmissionError) {
	perCore := int64(p.cpus.Size() / len(p.cores))
	if asked%perCore != 0 {
		return Set{}, &AdmissionError{Reason: ReasonSMTAlignment, Message: fmt.Sprintf(
			"container %q requests %d exclusive CPUs, which is not a whole number of cores: %s assigns the %d CPUs of a core together; request a multiple of %d",
			container, asked, fullPhysicalCPUs, perCore, perCore)}
	}
	var whole Set
	for _, core := range p.cores {
		if core.IsSubsetOf(free) {
			whole = whole.Union(core)
		}
	}
	if asked > int64(whole.Size()) {
		return Set{}, &AdmissionError{Reason: ReasonSMTAlignment, Message: fmt.Sprintf(
			"container %q requests %d exclusive CPUs, and %s free as whole cores: of CPUs %s, %s reserved, and other containers hold %s; request fewer, or delete a pod with exclusive CPUs",
			container, asked, countWithVerb(whole), p.cpus, withVerb(p.reserved), orNone(p.exclusive()))}
	}
	return whole, nil
}

func (p *Policy) exclusive() Set {
	var all Set
	for _, containers := range p.assigned {
		for _, s := range containers {
			all = all.Union(s)
		}
	}
	return all
}

func (p *Policy) assign(podUID types.UID, container string, s Set) {
	if p.assigned[podUID] == nil {
		p.assigned[podUID] = map[string]Set{}
	}
	p.assigned[podUID][container] = s
}

func (p *Policy) unassign(podUID types.UID, container string) {
	delete(p.assigned[podUID], container)
	if len(p.assigned[podUID]) == 0 {
		delete(p.assigned, podUID)
	}
}

// orNone formats a set for a sentence.
func orNone(s Set) string {
	if s.IsEmpty() {
		return "none"
	}
	return s.String()
}

// withVerb formats a set as the subject of a sentence, with its verb.
func withVerb(s Set) string {
	if s.Size() == 1 {
		return s.String() + " is"
	}
	return s.String() + " are"
}

// countWithVerb formats the number and the members of a set, with its verb.
func countWithVerb(s Set) string {
	switch n := s.Size(); n {
	case 0:
		return "none is"
	case 1:
		return "1 (" + s.String() + ") is"
	default:
		return fmt.Sprintf("%d (%s) are", n, s)
	}
}

// HasExclusive reports whether any container of the pod has exclusive CPUs.
func (p *Policy) HasExclusive(podUID types.UID) bool { return len(p.assigned[podUID]) > 0 }

// Container is a container with its actual or desired CPUs.
type Container struct {
	PodUID types.UID
	Name   string
	// CPUs is its cpuset.cpus. It is empty if that is empty, as for a container that
	// was started under another policy.
	CPUs Set
}

// Changes returns the containers whose CPUs differ from the desired ones, with the
// desired CPUs: after an allocation or a release, all containers of the shared pool.
// They are in the order in which to update them: first those of the shared pool,
// which must leave a CPU before a container has it exclusively. running must hold all
// running containers, including ephemeral ones, which a kubelet omits (reconcileState
// in pkg/kubelet/cm/cpumanager/cpu_manager.go).
func (p *Policy) Changes(running []Container) []Container {
	pool := p.SharedPool()
	var shared, alone []Container
	for _, c := range running {
		own, has := p.Exclusive(c.PodUID, c.Name)
		switch {
		case has && !Equal(own, c.CPUs):
			alone = append(alone, Container{c.PodUID, c.Name, own})
		case !has && !Equal(pool, c.CPUs):
			shared = append(shared, Container{c.PodUID, c.Name, pool})
		}
	}
	return append(shared, alone...)
}

// Reasons of rejections, as the kubelet's (pkg/kubelet/cm/admission/errors.go,
// pkg/kubelet/cm/cpumanager/policy_static.go).
const (
	ReasonUnexpected   = "UnexpectedAdmissionError"
	ReasonSMTAlignment = "SMTAlignmentError"
)

// AdmissionError is the error for a container whose exclusive CPUs cannot be assigned. Its
// pod fails with Reason.
type AdmissionError struct {
	Reason, Message string
}

func (r *AdmissionError) Error() string { return r.Message }
