package resize

import (
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/tinylet/tinylet/agent/pod"
)

// Allocation is what a pod was given by the node: the requests and limits of
// its init and main containers by name, and those of the pod as a whole. An
// ephemeral container has none. It is a value that is not changed once made.
type Allocation struct {
	Containers map[string]v1.ResourceRequirements
	// Pod is nil for a pod without resources of its own, which is not the
	// same as empty ones: those decide its QoS class.
	Pod *v1.ResourceRequirements
}

// Of is the allocation that gives the pod what its spec asks for
// (allocationFromPod in pkg/kubelet/allocation/allocation_manager.go). It is
// also what a pod is taken to have been given when nothing is on record: a
// kubelet without its record does not start (newStateImpl panics), a board
// that lost a file shall. A resize that was pending then counts as allocated.
func Of(p *v1.Pod) Allocation {
	a := Allocation{Containers: map[string]v1.ResourceRequirements{}}
	for c, kind := range pod.Containers(&p.Spec) {
		if kind != pod.Ephemeral {
			a.Containers[c.Name] = bare(&c.Resources)
		}
	}
	if own := p.Spec.Resources; own != nil {
		a.Pod = new(bare(own))
	}
	return a
}

// Apply is the pod with the allocation in place of its spec's resources
// (updatePodFromAllocation). It is p itself where the two agree; else it
// shares all that it does not replace with p. Containers that the allocation
// does not name keep what they have.
func (a Allocation) Apply(p *v1.Pod) *v1.Pod {
	out := p
	own := func() *v1.Pod {
		if out == p {
			out = new(*p)
		}
		return out
	}
	if !samePod(p.Spec.Resources, a.Pod) {
		own().Spec.Resources = nil
		if a.Pod != nil {
			out.Spec.Resources = new(overlay(p.Spec.Resources, a.Pod))
		}
	}
	if list, changed := a.overlay(p.Spec.InitContainers); changed {
		own().Spec.InitContainers = list
	}
	if list, changed := a.overlay(p.Spec.Containers); changed {
		own().Spec.Containers = list
	}
	return out
}

// overlay is the list with the allocation's resources.
func (a Allocation) overlay(list []v1.Container) (out []v1.Container, changed bool) {
	for i := range list {
		given, ok := a.Containers[list[i].Name]
		if !ok || same(&list[i].Resources, &given) {
			continue
		}
		if !changed {
			list, changed = slices.Clone(list), true
		}
		list[i].Resources = overlay(&list[i].Resources, &given)
	}
	return list, changed
}

// Meets says whether the allocation is what the pod's spec asks for.
func (a Allocation) Meets(p *v1.Pod) bool { return a.Apply(p) == p }

// Equal compares amounts, however they are written; an empty list is like
// none.
func (a Allocation) Equal(b Allocation) bool {
	if len(a.Containers) != len(b.Containers) || !samePod(a.Pod, b.Pod) {
		return false
	}
	for name, r := range a.Containers {
		other, ok := b.Containers[name]
		if !ok || !same(&r, &other) {
			return false
		}
	}
	return true
}

// bare is a copy of requests and limits; claims are not resized.
func bare(r *v1.ResourceRequirements) v1.ResourceRequirements {
	return v1.ResourceRequirements{Requests: r.Requests.DeepCopy(), Limits: r.Limits.DeepCopy()}
}

func overlay(spec, given *v1.ResourceRequirements) v1.ResourceRequirements {
	out := bare(given)
	if spec != nil {
		out.Claims = spec.Claims
	}
	return out
}

func samePod(a, b *v1.ResourceRequirements) bool {
	if a == nil || b == nil {
		return a == b
	}
	return same(a, b)
}

func same(a, b *v1.ResourceRequirements) bool {
	return sameList(a.Requests, b.Requests) && sameList(a.Limits, b.Limits)
}

func sameList(a, b v1.ResourceList) bool {
	if len(a) != len(b) {
		return false
	}
	for name, q := range a {
		if other, ok := b[name]; !ok || q.Cmp(other) != 0 {
			return false
		}
	}
	return true
}
