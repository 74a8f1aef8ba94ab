package resize

import (
	v1 "k8s.io/api/core/v1"

	"github.com/tinylet/tinylet/agent/pod"
)

// Reported is the allocation of a pod without a record, by what the API
// server was told of it: somebody may have changed its spec while no agent
// was there. Requests are those that were allocated, limits those that the
// containers have. A container without a status has what the spec asks for,
// as has the pod as a whole, whose status shows sums. A request or a limit
// that the status lacks was added since; none can be taken away.
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
	return a
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
