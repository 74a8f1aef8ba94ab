package resize

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/tinylet/tinylet/agent/pod"
)

// Reported is the allocation of a pod without a record, by what the API
// server was told of it: somebody may have changed its spec while no agent
// was there. Requests are those that were allocated, limits those that the
// containers have. A container without a status has what the spec asks for. A
// request or a limit that the status lacks was added since; none can be taken
// away. Of the pod as a whole the status shows sums, with its overhead: what
// the pod has as a whole stands in their place.
func Reported(p *v1.Pod) Allocation {
	a := Of(p)
	for name, r := range a.Containers {
		s := pod.StatusOf(&p.Status, name)
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
		put := func(list, told v1.ResourceList) {
			for name, asked := range list {
				has, known := told[name]
				if !known || !pod.PodLevel(name) {
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

// sameInPages says whether an amount is what was asked for, as the kernel shows
// it: memory in whole pages, of which none has more than 64 KiB.
func sameInPages(name v1.ResourceName, asked, has resource.Quantity) bool {
	if name != v1.ResourceMemory {
		return asked.Cmp(has) == 0
	}
	less := whole(asked) - whole(has)
	return less >= 0 && less < 64<<10
}

// report puts in what was told of cpu and memory; the list is the caller's.
func report(list, told v1.ResourceList) {
	for _, name := range []v1.ResourceName{v1.ResourceCPU, v1.ResourceMemory} {
		asked, ok := list[name]
		if !ok {
			continue
		}
		switch has, known := told[name]; {
		case !known && !asked.IsZero():
			delete(list, name)
		case known:
			list[name] = has
		}
	}
}
