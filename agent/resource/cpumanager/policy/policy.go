package policy

import (
	"fmt"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tinylet/tinylet/agent/pod"
)

// Policy is who has which CPUs. It is not safe for concurrent use.
type Policy struct {
	cpus     Set
	cores    []Set
	reserved Set
	options  Options
	// held are the CPUs of containers that have some alone, by pod and name.
	// The shared pool is what is in none of them, so the two cannot disagree.
	held map[types.UID]map[string]Set
}

// New is a policy by which nobody holds anything. It fails where the topology
// contradicts itself, and where no CPU is reserved or one that is not online.
func New(t Topology, reserved Set, o Options) (*Policy, error) {
	cores, err := t.cores()
	if err != nil {
		return nil, fmt.Errorf("CPU topology: %w", err)
	}
	if reserved.IsEmpty() {
		return nil, fmt.Errorf("no CPU of %s is reserved: the shared pool could come to nothing", t.CPUs)
	}
	if !reserved.Within(t.CPUs) {
		return nil, fmt.Errorf("the CPUs %s are reserved, but the machine has %s", reserved, t.CPUs)
	}
	return &Policy{cpus: t.CPUs, cores: cores, reserved: reserved, options: o, held: map[types.UID]map[string]Set{}}, nil
}

// Reserved are the CPUs that no container has alone.
func (p *Policy) Reserved() Set { return p.reserved }

// SharedPool is where all run that hold no CPUs of their own. It is never
// empty.
func (p *Policy) SharedPool() Set { return p.cpus.Difference(p.exclusive()) }

// Free is what may still be given away.
func (p *Policy) Free() Set { return p.SharedPool().Difference(p.reserved) }

// Exclusive is what the container has alone, and whether it has.
func (p *Policy) Exclusive(podUID types.UID, container string) (Set, bool) {
	s, ok := p.held[podUID][container]
	return s, ok
}

// CPUs is where the container is to run: on its own CPUs, or on the shared
// pool.
func (p *Policy) CPUs(podUID types.UID, container string) Set {
	if s, ok := p.held[podUID][container]; ok {
		return s
	}
	return p.SharedPool()
}

// Allocate gives the container the CPUs that it asks for alone; nothing to one
// that asks for none or has them already. It fails with a Refusal, and then
// nothing has changed.
func (p *Policy) Allocate(in *v1.Pod, c *v1.Container) error {
	asked := Asked(in, c)
	if _, has := p.held[in.UID][c.Name]; has || asked == 0 {
		return nil
	}
	free := p.Free().Union(p.reusable(in, c.Name))
	if p.options.FullPhysicalCPUs {
		var refused *Refusal
		if free, refused = p.wholeCores(free, c.Name, asked); refused != nil {
			return refused
		}
	}
	if asked > int64(free.Len()) {
		return &Refusal{Reason: ReasonUnexpected, Message: fmt.Sprintf(
			"container %q asks for %d CPUs of its own, and %s free: of CPUs %s, %s reserved, and other containers hold %s; ask for less, or for a fraction of a CPU to run on shared ones, or end a pod that holds CPUs",
			c.Name, asked, count(free), p.cpus, is(p.reserved), named(p.exclusive()))}
	}
	p.hold(in.UID, c.Name, take(p.cores, free, int(asked)))
	return nil
}

// AllocatePod gives all containers of the pod what they ask for, in the order
// in which they start. Where one is refused, none has got anything.
func (p *Policy) AllocatePod(in *v1.Pod) error {
	var given []string
	for c, kind := range pod.Containers(&in.Spec) {
		if kind == pod.Ephemeral {
			continue
		}
		_, had := p.held[in.UID][c.Name]
		if err := p.Allocate(in, c); err != nil {
			for _, name := range given {
				p.drop(in.UID, name)
			}
			return err
		}
		if !had {
			given = append(given, c.Name)
		}
	}
	return nil
}

// Release takes back what the pod's containers hold, and says what that was.
// To release a pod that holds nothing does nothing.
func (p *Policy) Release(podUID types.UID) Set {
	var freed Set
	for _, s := range p.held[podUID] {
		freed = freed.Union(s)
	}
	delete(p.held, podUID)
	return freed
}

// reusable are the CPUs of those of the pod's containers that never run beside
// this one, without what one that does has taken over from them.
func (p *Policy) reusable(in *v1.Pod, container string) Set {
	var mine, taken Set
	for name, s := range p.held[in.UID] {
		if beside(&in.Spec, name, container) {
			taken = taken.Union(s)
		} else {
			mine = mine.Union(s)
		}
	}
	return mine.Difference(taken)
}

// wholeCores are the cores of which all is free. They must have room for what
// is asked for, which must be a whole number of them (enforceSMTAlignment in
// pkg/kubelet/cm/cpumanager/policy_static.go).
func (p *Policy) wholeCores(free Set, container string, asked int64) (Set, *Refusal) {
	perCore := int64(p.cpus.Len() / len(p.cores))
	if asked%perCore != 0 {
		return Set{}, &Refusal{Reason: ReasonSMTAlignment, Message: fmt.Sprintf(
			"container %q asks for %d CPUs of its own, which is no whole number of cores: with %s a core's %d CPUs are given together; ask for a multiple of %d",
			container, asked, fullPhysicalCPUs, perCore, perCore)}
	}
	var whole Set
	for _, core := range p.cores {
		if core.Within(free) {
			whole = whole.Union(core)
		}
	}
	if asked > int64(whole.Len()) {
		return Set{}, &Refusal{Reason: ReasonSMTAlignment, Message: fmt.Sprintf(
			"container %q asks for %d CPUs of its own, and %s free as whole cores: of CPUs %s, %s reserved, and other containers hold %s; ask for less, or end a pod that holds CPUs",
			container, asked, count(whole), p.cpus, is(p.reserved), named(p.exclusive()))}
	}
	return whole, nil
}

// exclusive is all that is held.
func (p *Policy) exclusive() Set {
	var all Set
	for _, containers := range p.held {
		for _, s := range containers {
			all = all.Union(s)
		}
	}
	return all
}

func (p *Policy) hold(podUID types.UID, container string, s Set) {
	if p.held[podUID] == nil {
		p.held[podUID] = map[string]Set{}
	}
	p.held[podUID][container] = s
}

func (p *Policy) drop(podUID types.UID, container string) {
	delete(p.held[podUID], container)
	if len(p.held[podUID]) == 0 {
		delete(p.held, podUID)
	}
}

// named is a set in a sentence.
func named(s Set) string {
	if s.IsEmpty() {
		return "none"
	}
	return s.String()
}

// is is a set that is the subject of a sentence.
func is(s Set) string {
	if s.Len() == 1 {
		return s.String() + " is"
	}
	return s.String() + " are"
}

// count is how many a sentence speaks of, and which.
func count(s Set) string {
	switch n := s.Len(); n {
	case 0:
		return "none is"
	case 1:
		return "1 (" + s.String() + ") is"
	default:
		return fmt.Sprintf("%d (%s) are", n, s)
	}
}

// Holds says whether a container of the pod has CPUs alone.
func (p *Policy) Holds(podUID types.UID) bool { return len(p.held[podUID]) > 0 }
