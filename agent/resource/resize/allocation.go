package resize

import (
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/tinylet/tinylet/agent/pod"
)

// Allocation holds the resources that the node allocated to a pod: the requests and
// limits of its init and main containers by name, and the pod-level ones. Ephemeral
// containers have none. An Allocation is immutable.
type Allocation struct {
	Containers map[string]v1.ResourceRequirements
	// Pod is nil for a pod without pod-level resources. That differs from empty ones,
	// which determine the QoS class.
	Pod *v1.ResourceRequirements
}

// FromSpec returns the allocation that equals the resources of the pod's spec
// (allocationFromPod in pkg/kubelet/allocation/allocation_manager.go).
func FromSpec(p *v1.Pod) Allocation {
	a := Allocation{Containers: map[string]v1.ResourceRequirements{}}
	for c, kind := range pod.Containers(&p.Spec) {
		if kind != pod.Ephemeral {
			a.Containers[c.Name] = withoutClaims(&c.Resources)
		}
	}
	if own := p.Spec.Resources; own != nil {
		a.Pod = new(withoutClaims(own))
	}
	return a
}

// Apply returns the pod with the allocation in place of its spec's resources
// (updatePodFromAllocation). It returns p itself if the two agree; otherwise the
// result shares with p what it does not replace. Containers missing in the allocation
// keep their resources.
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

// overlay returns the list with the allocation's resources. It does not change list.
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

// MatchesSpec reports whether the allocation equals the resources of the pod's spec.
func (a Allocation) MatchesSpec(p *v1.Pod) bool { return a.Apply(p) == p }

// Equal compares amounts independent of their notation. An empty list equals nil.
func (a Allocation) Equal(b Allocation) bool {
	return samePod(a.Pod, b.Pod) && maps.EqualFunc(a.Containers, b.Containers, func(x, y v1.ResourceRequirements) bool { return same(&x, &y) })
}

// withoutClaims returns a copy of requests and limits. Claims are not resized.
func withoutClaims(r *v1.ResourceRequirements) v1.ResourceRequirements {
	return v1.ResourceRequirements{Requests: r.Requests.DeepCopy(), Limits: r.Limits.DeepCopy()}
}

func overlay(spec, given *v1.ResourceRequirements) v1.ResourceRequirements {
	out := withoutClaims(given)
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
	return maps.EqualFunc(a.Requests, b.Requests, resource.Quantity.Equal) && maps.EqualFunc(a.Limits, b.Limits, resource.Quantity.Equal)
}
