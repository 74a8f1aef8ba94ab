package policy

import (
	"fmt"
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tinylet/tinylet/agent/pod"
)

// LivePod is a pod that exists or may exist on the node: one that a source or the
// journal names, or that has containers in the runtime.
type LivePod struct {
	UID types.UID
	// Pod is nil if only the runtime lists it. Its saved CPUs are kept until it is
	// released.
	Pod *v1.Pod
	// Running holds the cpuset.cpus of its running containers by name.
	Running map[string]Set
}

// Restored is the result of Restore.
type Restored struct {
	Policy *Policy
	// Changed describes the differences of machine and configuration from the saved
	// state.
	Changed []string
	// Dropped holds the saved assignments that are no longer valid.
	Dropped []Dropped
	// Adopted holds the assignments taken from running containers, not from the saved
	// state.
	Adopted []Container
}

// Dropped is a saved assignment that was dropped.
type Dropped struct {
	Container
	Reason string
}

// Restore creates a Policy from the saved state as far as it fits the machine, the
// configuration and the pods. In three rounds it assigns the CPUs on which the saved
// state and the running container agree, then those that running containers use, then
// those in the saved state; each only if their number equals the request, and they
// are online, not reserved and not assigned to another container. So a missing or
// wrong state is rebuilt from consistent running containers, and if two containers
// claim a CPU, the running one gets it.
//
// In all these cases a kubelet refuses to start (validateState in
// pkg/kubelet/cm/cpumanager/policy_static.go) until the node is drained and the file
// deleted, which may not be possible on a remote node.
//
// The caller must then allocate again what live pods have lost (AllocatePod), and
// update the running containers (Changes). Restore returns an error only if New does.
func Restore(saved Saved, t Topology, reserved Set, o Options, live []LivePod) (Restored, error) {
	p, err := New(t, reserved, o)
	if err != nil {
		return Restored{}, err
	}
	r := Restored{Policy: p, Changed: saved.changed(p)}
	claims := claimsOf(saved, live)
	for _, c := range claims {
		if c.isSaved && c.isRunning && Equal(c.saved, c.running) {
			c.assignIfFits(p, c.saved)
		}
	}
	for _, c := range claims {
		if c.isRunning {
			c.assignIfFits(p, c.running)
		}
	}
	for _, c := range claims {
		if c.isSaved && saved.Policy == Static {
			c.assignIfFits(p, c.saved)
		}
	}
	for _, c := range claims {
		if has, ok := p.Exclusive(c.uid, c.name); ok && (!c.isSaved || !Equal(has, c.saved)) {
			r.Adopted = append(r.Adopted, Container{c.uid, c.name, has})
		}
	}
	r.Dropped = saved.dropped(p, claims, live)
	return r, nil
}

// changed returns the differences of the machine and its configuration from the
// state.
func (s Saved) changed(p *Policy) []string {
	var words []string
	if s.Policy == "" {
		return nil
	}
	if s.Policy != Static {
		words = append(words, fmt.Sprintf("cpuManagerPolicy was %s", s.Policy))
	}
	if gone := s.CPUs.Difference(p.cpus); !gone.IsEmpty() {
		words = append(words, fmt.Sprintf("CPUs %s are no longer online", gone))
	}
	if more := p.cpus.Difference(s.CPUs.Set); !more.IsEmpty() {
		words = append(words, fmt.Sprintf("CPUs %s are online now", more))
	}
	if !Equal(s.Reserved.Set, p.reserved) {
		words = append(words, fmt.Sprintf("CPUs %s were reserved, now %s", orNone(s.Reserved.Set), withVerb(p.reserved)))
	}
	return words
}

// dropped returns the saved assignments that the policy does not have.
func (s Saved) dropped(p *Policy, claims []*claim, live []LivePod) []Dropped {
	var all []Dropped
	for _, uid := range slices.Sorted(maps.Keys(s.Pods)) {
		known := slices.ContainsFunc(live, func(l LivePod) bool { return l.UID == uid })
		for _, name := range slices.Sorted(maps.Keys(s.Pods[uid])) {
			set := s.Pods[uid][name].Set
			has, ok := p.Exclusive(uid, name)
			if ok && Equal(has, set) {
				continue
			}
			d := Dropped{Container: Container{uid, name, set}}
			at := slices.IndexFunc(claims, func(c *claim) bool { return c.uid == uid && c.name == name })
			switch {
			case !known:
				d.Reason = "the node has no such pod"
			case at < 0:
				d.Reason = "the pod has no such container with exclusive CPUs"
			case ok:
				d.Reason = fmt.Sprintf("the container runs on %s", has)
			case s.Policy != Static:
				d.Reason = fmt.Sprintf("cpuManagerPolicy was %s", s.Policy)
			default:
				d.Reason = claims[at].rejectReason(p, set)
			}
			all = append(all, d)
		}
	}
	return all
}

// claim is a container's claim to exclusive CPUs.
type claim struct {
	uid                types.UID
	pod                *v1.Pod // nil if unknown
	name               string
	asked              int64
	saved, running     Set
	isSaved, isRunning bool
}

// claimsOf returns the claims of all live pods, in the order of pods and containers.
func claimsOf(saved Saved, live []LivePod) []*claim {
	var all []*claim
	for _, l := range live {
		had := saved.Pods[l.UID]
		add := func(name string, asked int64) {
			c := &claim{uid: l.UID, pod: l.Pod, name: name, asked: asked}
			saved, isSaved := had[name]
			c.saved, c.isSaved = saved.Set, isSaved
			c.running, c.isRunning = l.Running[name]
			all = append(all, c)
		}
		if l.Pod == nil {
			for _, name := range slices.Sorted(maps.Keys(had)) {
				add(name, int64(had[name].Size()))
			}
			continue
		}
		for c, kind := range pod.Containers(&l.Pod.Spec) {
			if asked := RequestedCPUs(l.Pod, c); asked > 0 && kind != pod.Ephemeral {
				add(c.Name, asked)
			}
		}
	}
	return all
}

// assignIfFits assigns the set to the container if it has none yet and the set fits.
func (c *claim) assignIfFits(p *Policy, s Set) {
	if _, has := p.Exclusive(c.uid, c.name); !has && c.rejectReason(p, s) == "" {
		p.assign(c.uid, c.name, s)
	}
}

// rejectReason returns why the set cannot be assigned to the container, or "" if it can.
func (c *claim) rejectReason(p *Policy, s Set) string {
	if s.IsEmpty() {
		return "the set is empty"
	}
	if gone := s.Difference(p.cpus); !gone.IsEmpty() {
		return fmt.Sprintf("%s not online", withVerb(gone))
	}
	if taken := s.Intersection(p.reserved); !taken.IsEmpty() {
		return fmt.Sprintf("%s reserved", withVerb(taken))
	}
	if int64(s.Size()) != c.asked {
		return fmt.Sprintf("the container requests %d", c.asked)
	}
	for _, uid := range slices.Sorted(maps.Keys(p.assigned)) {
		for _, name := range slices.Sorted(maps.Keys(p.assigned[uid])) {
			both := s.Intersection(p.assigned[uid][name])
			if both.IsEmpty() || uid == c.uid && (c.pod == nil || !canOverlap(&c.pod.Spec, name, c.name)) {
				continue
			}
			return fmt.Sprintf("%s held by container %q of pod %s", withVerb(both), name, uid)
		}
	}
	return ""
}
