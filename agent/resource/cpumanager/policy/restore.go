package policy

import (
	"fmt"
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tinylet/tinylet/agent/pod"
)

// Live is a pod that the node has or may have: one that a source or the
// journal names, or of which the runtime has containers.
type Live struct {
	UID types.UID
	// Pod is nil where only the runtime knows of it. What it had is then kept
	// until it is released.
	Pod *v1.Pod
	// Running is where its running containers run, by name (cpuset.cpus).
	Running map[string]Set
}

// Restored is what Restore came to.
type Restored struct {
	Policy *Policy
	// Changed is what is different from when the state was saved, in words.
	Changed []string
	// Dropped is what was saved and does not hold any more.
	Dropped []Dropped
	// Adopted is what does not stem from the state, but from what runs.
	Adopted []Container
}

// Dropped is an assignment that was given up.
type Dropped struct {
	Container
	Why string
}

func (d Dropped) String() string {
	return fmt.Sprintf("pod %s, container %q: its CPUs %s are not kept: %s", d.PodUID, d.Name, d.CPUs, d.Why)
}

// Restore makes a policy of the saved state, as far as it fits the machine,
// the configuration and the pods. In three rounds, containers get what state
// and machine agree on, then what they run on, then what the state says; each
// only if it is as many CPUs as they ask for, online, not reserved, and nobody
// else's. So a state that is gone or wrong is built again from what runs, if
// that is in order, and of two claims to one CPU that of a running container
// holds.
//
// A kubelet refuses to start in all these cases (validateState in
// pkg/kubelet/cm/cpumanager/policy_static.go), until somebody drains the node
// and deletes the file. Nobody may reach a board for that.
//
// What a live pod has lost by it is to be asked for anew (AllocatePod), and the
// running containers then brought to where they belong (Changes). Restore fails
// only where New does.
func Restore(saved Saved, t Topology, reserved Set, o Options, live []Live) (Restored, error) {
	p, err := New(t, reserved, o)
	if err != nil {
		return Restored{}, err
	}
	r := Restored{Policy: p, Changed: saved.changed(p)}
	claims := claimsOf(saved, live)
	for _, c := range claims {
		if c.isSaved && c.isRunning && c.saved == c.running {
			c.settle(p, c.saved)
		}
	}
	for _, c := range claims {
		if c.isRunning {
			c.settle(p, c.running)
		}
	}
	for _, c := range claims {
		if c.isSaved && saved.Policy == Static {
			c.settle(p, c.saved)
		}
	}
	for _, c := range claims {
		if has, ok := p.Exclusive(c.uid, c.name); ok && (!c.isSaved || has != c.saved) {
			r.Adopted = append(r.Adopted, Container{c.uid, c.name, has})
		}
	}
	r.Dropped = saved.dropped(p, claims, live)
	return r, nil
}

// changed compares the state with the machine and its configuration.
func (s Saved) changed(p *Policy) []string {
	var words []string
	if s.Policy == "" {
		return nil
	}
	if s.Policy != Static {
		words = append(words, fmt.Sprintf("cpuManagerPolicy was %s", s.Policy))
	}
	if gone := s.CPUs.Difference(p.cpus); !gone.IsEmpty() {
		words = append(words, fmt.Sprintf("CPUs %s are not online any more", gone))
	}
	if more := p.cpus.Difference(s.CPUs); !more.IsEmpty() {
		words = append(words, fmt.Sprintf("CPUs %s are online now", more))
	}
	if s.Reserved != p.reserved {
		words = append(words, fmt.Sprintf("CPUs %s were reserved, now %s", named(s.Reserved), is(p.reserved)))
	}
	return words
}

// dropped is what of the state the policy does not have.
func (s Saved) dropped(p *Policy, claims []*claim, live []Live) []Dropped {
	var all []Dropped
	for _, uid := range slices.Sorted(maps.Keys(s.Pods)) {
		known := slices.ContainsFunc(live, func(l Live) bool { return l.UID == uid })
		for _, name := range slices.Sorted(maps.Keys(s.Pods[uid])) {
			set := s.Pods[uid][name]
			has, ok := p.Exclusive(uid, name)
			if ok && has == set {
				continue
			}
			d := Dropped{Container: Container{uid, name, set}}
			at := slices.IndexFunc(claims, func(c *claim) bool { return c.uid == uid && c.name == name })
			switch {
			case !known:
				d.Why = "the node has no such pod"
			case at < 0:
				d.Why = "the pod has no such container that asks for CPUs of its own"
			case ok:
				d.Why = fmt.Sprintf("it runs on %s", has)
			case s.Policy != Static:
				d.Why = fmt.Sprintf("cpuManagerPolicy was %s", s.Policy)
			default:
				d.Why = claims[at].unfit(p, set)
			}
			all = append(all, d)
		}
	}
	return all
}

// claim is what there is to say for a container's having CPUs alone.
type claim struct {
	uid                types.UID
	pod                *v1.Pod // nil if it is not known
	name               string
	asked              int64
	saved, running     Set
	isSaved, isRunning bool
}

// claimsOf are the claims of all live pods, in their order, and in that of
// their containers.
func claimsOf(saved Saved, live []Live) []*claim {
	var all []*claim
	for _, l := range live {
		had := saved.Pods[l.UID]
		add := func(name string, asked int64) {
			c := &claim{uid: l.UID, pod: l.Pod, name: name, asked: asked}
			c.saved, c.isSaved = had[name]
			c.running, c.isRunning = l.Running[name]
			all = append(all, c)
		}
		if l.Pod == nil {
			for _, name := range slices.Sorted(maps.Keys(had)) {
				add(name, int64(had[name].Len()))
			}
			continue
		}
		for c, kind := range pod.Containers(&l.Pod.Spec) {
			if asked := Asked(l.Pod, c); asked > 0 && kind != pod.Ephemeral {
				add(c.Name, asked)
			}
		}
	}
	return all
}

// settle gives the container the set, if it has none yet and the set fits.
func (c *claim) settle(p *Policy, s Set) {
	if _, has := p.Exclusive(c.uid, c.name); !has && c.unfit(p, s) == "" {
		p.hold(c.uid, c.name, s)
	}
}

// unfit is why the container cannot have the set; "" if it can.
func (c *claim) unfit(p *Policy, s Set) string {
	if s.IsEmpty() {
		return "there are none"
	}
	if gone := s.Difference(p.cpus); !gone.IsEmpty() {
		return fmt.Sprintf("%s not online", is(gone))
	}
	if taken := s.Intersect(p.reserved); !taken.IsEmpty() {
		return fmt.Sprintf("%s reserved", is(taken))
	}
	if int64(s.Len()) != c.asked {
		return fmt.Sprintf("it asks for %d", c.asked)
	}
	for _, uid := range slices.Sorted(maps.Keys(p.held)) {
		for _, name := range slices.Sorted(maps.Keys(p.held[uid])) {
			both := s.Intersect(p.held[uid][name])
			if both.IsEmpty() || uid == c.uid && (c.pod == nil || !beside(&c.pod.Spec, name, c.name)) {
				continue
			}
			return fmt.Sprintf("%s held by container %q of pod %s", is(both), name, uid)
		}
	}
	return ""
}
