package resize

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/tinylet/tinylet/agent/pod"
)

// FromStatus returns the assumed allocation of a pod without a checkpoint, from its
// status in the API server: the spec may have changed while the agent was not running.
// A kubelet without its checkpoint does not start (newStateImpl panics), but a node that
// lost a file must.
//
// Requests are the allocated ones, limits the actual ones. A container without a status
// gets the resources of the spec. A request or limit that is missing in the status was
// added since; none can be removed. For the whole pod the status holds sums including
// the overhead: they only replace values of the pod-level resources.
func FromStatus(p *v1.Pod) Allocation {
	a := FromSpec(p)
	for name, r := range a.Containers {
		s := pod.FindContainerStatus(&p.Status, name)
		if s == nil || s.Resources == nil {
			continue
		}
		requests := s.AllocatedResources
		if requests == nil {
			requests = s.Resources.Requests
		}
		report(r.Requests, requests)
		report(r.Limits, s.Resources.Limits)
		a.Containers[name] = r
	}
	if own := a.Pod; own != nil && p.Status.Resources != nil {
		put := func(list, reported v1.ResourceList) {
			for name, asked := range list {
				has, known := reported[name]
				if !known || !pod.IsSupportedPodLevelResource(name) {
					continue
				}
				has.Sub(p.Spec.Overhead[name])
				if has.Sign() > 0 && !sameInPages(name, asked, has) {
					list[name] = has
				}
			}
		}
		put(own.Requests, p.Status.AllocatedResources)
		put(own.Limits, p.Status.Resources.Limits)
	}
	return a
}

// sameInPages reports whether an actual amount equals the requested one as the kernel
// rounds it: memory to whole pages, of at most 64 KiB.
func sameInPages(name v1.ResourceName, asked, has resource.Quantity) bool {
	if name != v1.ResourceMemory {
		return asked.Cmp(has) == 0
	}
	less := pod.Value(asked) - pod.Value(has)
	return less >= 0 && less < 64<<10
}

// report overwrites cpu and memory in list with the reported values.
func report(list, reported v1.ResourceList) {
	for _, name := range []v1.ResourceName{v1.ResourceCPU, v1.ResourceMemory} {
		asked, ok := list[name]
		if !ok {
			continue
		}
		switch has, known := reported[name]; {
		case !known && !asked.IsZero():
			delete(list, name)
		case known:
			list[name] = has
		}
	}
}
