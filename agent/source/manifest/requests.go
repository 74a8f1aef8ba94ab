package manifest

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/tinylet/tinylet/agent/pod"
)

// defaultRequests sets missing requests to the limits.
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

// roundUp rounds every quantity up to a whole number of thousandths, the finest
// unit of the API.
func roundUp(list v1.ResourceList) {
	for name, quantity := range list {
		if !quantity.RoundUp(resource.Milli) {
			list[name] = quantity
		}
	}
}

// defaultPodHugePages sets the hugepage limits of a pod with pod-level
// resources to the aggregate of its containers.
func defaultPodHugePages(spec *v1.PodSpec) {
	own := spec.Resources
	if len(own.Limits) == 0 && len(own.Requests) == 0 {
		return
	}
	for name, quantity := range pod.Limits(containersOf(spec)) {
		_, requested := own.Requests[name]
		_, limited := own.Limits[name]
		if !pod.IsHugePages(name) || requested || limited {
			continue
		}
		if own.Limits == nil {
			own.Limits = v1.ResourceList{}
		}
		own.Limits[name] = quantity
	}
}

// defaultPodRequests completes the requests of a pod with pod-level limits:
// with the aggregate requests of its containers, else with the limits
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
	needed := pod.Requests(containersOf(spec))
	for _, name := range []v1.ResourceName{v1.ResourceCPU, v1.ResourceMemory} {
		quantity, needs := needed[name]
		if _, given := requests[name]; needs && !given {
			requests[name] = quantity
		}
	}
	for name, limit := range own.Limits {
		if _, ok := requests[name]; !ok && pod.IsSupportedPodLevelResource(name) {
			requests[name] = limit.DeepCopy()
		}
	}
	if len(requests) > 0 {
		own.Requests = requests
	}
}

// containersOf returns a pod of the containers alone: its requests and limits are their
// aggregate, the most that they need at any one time.
func containersOf(spec *v1.PodSpec) *v1.Pod {
	return &v1.Pod{Spec: v1.PodSpec{InitContainers: spec.InitContainers, Containers: spec.Containers}}
}
