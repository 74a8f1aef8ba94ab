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

// defaultPodHugePages gives a pod with resources of its own the limits of
// huge pages that its containers have together.
func defaultPodHugePages(spec *v1.PodSpec) {
	own := spec.Resources
	if len(own.Limits) == 0 && len(own.Requests) == 0 {
		return
	}
	for name, quantity := range containerLimits(spec) {
		_, requested := own.Requests[name]
		_, limited := own.Limits[name]
		if !isHugePages(name) || requested || limited {
			continue
		}
		if own.Limits == nil {
			own.Limits = v1.ResourceList{}
		}
		own.Limits[name] = quantity
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
		}
	}
	for name, limit := range own.Limits {
		if _, ok := requests[name]; !ok && pod.PodLevel(name) {
			requests[name] = limit.DeepCopy()
		}
	}
	if len(requests) > 0 {
		own.Requests = requests
	}
}

// containerRequests is what the containers need at most at one time, without
// what the pod asks for as a whole.
func containerRequests(spec *v1.PodSpec) v1.ResourceList { return pod.Requests(containersOf(spec)) }

// containerLimits is containerRequests for limits.
func containerLimits(spec *v1.PodSpec) v1.ResourceList { return pod.Limits(containersOf(spec)) }

func containersOf(spec *v1.PodSpec) *v1.Pod {
	return &v1.Pod{Spec: v1.PodSpec{InitContainers: spec.InitContainers, Containers: spec.Containers}}
}
