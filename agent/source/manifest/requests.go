package manifest

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/tinylet/tinylet/agent/pod"
)

// defaultRequests lets a container request what it limits and does not
// request.
func defaultRequests(r *v1.ResourceRequirements) {
	if r.Limits != nil && r.Requests == nil {
		r.Requests = make(v1.ResourceList, len(r.Limits))
	}
	for name, limit := range r.Limits {
		if _, ok := r.Requests[name]; !ok {
			r.Requests[name] = limit.DeepCopy()
		}
	}
}

// roundUp makes every quantity a whole number of thousandths: the API has no
// finer.
func roundUp(list v1.ResourceList) {
	for name, quantity := range list {
		if !quantity.RoundUp(resource.Milli) {
			list[name] = quantity
		}
	}
}

// defaultPodRequests completes a pod's own requests where it has its own
// limits: with what its containers need together, else with its limits
// (KEP-2837).
func defaultPodRequests(spec *v1.PodSpec) {
	own := spec.Resources
	if len(own.Limits) == 0 {
		return
	}
	requests := own.Requests.DeepCopy()
	if requests == nil {
		requests = v1.ResourceList{}
	}
	needed := containerRequests(spec)
	for _, name := range []v1.ResourceName{v1.ResourceCPU, v1.ResourceMemory} {
		if _, ok := requests[name]; ok {
			continue
		}
		if quantity, ok := needed[name]; ok {
			requests[name] = quantity
		} else if quantity, ok := own.Limits[name]; ok {
			requests[name] = quantity.DeepCopy()
		}
	}
	if len(requests) > 0 {
		own.Requests = requests
	}
}

// containerRequests is what the containers need at most at one time: all
// regular containers with all sidecars, or one init container with the
// sidecars before it.
func containerRequests(spec *v1.PodSpec) v1.ResourceList {
	together, sidecars, initial := v1.ResourceList{}, v1.ResourceList{}, v1.ResourceList{}
	for i := range spec.Containers {
		add(together, spec.Containers[i].Resources.Requests)
	}
	for i := range spec.InitContainers {
		c := &spec.InitContainers[i]
		if pod.IsRestartableInit(c) {
			add(together, c.Resources.Requests)
			add(sidecars, c.Resources.Requests)
			raise(initial, sidecars)
			continue
		}
		during := sidecars.DeepCopy()
		add(during, c.Resources.Requests)
		raise(initial, during)
	}
	raise(together, initial)
	return together
}

func add(sum, more v1.ResourceList) {
	for name, quantity := range more {
		total := sum[name].DeepCopy()
		total.Add(quantity)
		sum[name] = total
	}
}

func raise(most, other v1.ResourceList) {
	for name, quantity := range other {
		if old, ok := most[name]; !ok || quantity.Cmp(old) > 0 {
			most[name] = quantity.DeepCopy()
		}
	}
}
