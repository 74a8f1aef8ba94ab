package policy

import (
	"math"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/tinylet/tinylet/agent/pod"
)

// request returns the pod's request for a resource, in bytes, as used in ranking
// (GetResourceRequestQuantity in pkg/api/v1/resource/helpers.go): the largest sum
// that its containers request at a time, or, if the pod has pod-level resources, only
// the pod-level request. The overhead is added if the request is not 0. This differs
// in both points from pod.Requests, which is for scheduling and node allocatable. It
// allocates no maps.
func request(p *v1.Pod, name v1.ResourceName) int64 {
	var asked int64
	if hasPodLevelResources(p) {
		if pod.IsSupportedPodLevelResource(name) {
			asked = amount(p.Spec.Resources.Requests, name)
		}
	} else {
		asked = containersRequest(&p.Spec, name)
	}
	if asked == 0 {
		return 0
	}
	return saturatingAdd(asked, amount(p.Spec.Overhead, name))
}

// containersRequest returns the larger of the sum of main containers and sidecars,
// and the largest sum of one init container and the sidecars before it.
func containersRequest(s *v1.PodSpec, name v1.ResourceName) int64 {
	var sum, sidecars, most int64
	for i := range s.Containers {
		sum = saturatingAdd(sum, amount(s.Containers[i].Resources.Requests, name))
	}
	for i := range s.InitContainers {
		c := &s.InitContainers[i]
		asked := amount(c.Resources.Requests, name)
		most = max(most, saturatingAdd(sidecars, asked))
		if pod.IsRestartableInit(c) {
			sum, sidecars = saturatingAdd(sum, asked), saturatingAdd(sidecars, asked)
		}
	}
	return max(sum, most)
}

// hasPodLevelResources reports whether the pod has pod-level resources.
func hasPodLevelResources(p *v1.Pod) bool {
	if p.Spec.Resources == nil {
		return false
	}
	for _, list := range [...]v1.ResourceList{p.Spec.Resources.Requests, p.Spec.Resources.Limits} {
		for name := range list {
			if pod.IsSupportedPodLevelResource(name) {
				return true
			}
		}
	}
	return false
}

func amount(list v1.ResourceList, name v1.ResourceName) int64 {
	q, ok := list[name]
	if !ok {
		return 0
	}
	return max(roundUp(q), 0)
}

// roundUp rounds a quantity up to an integer. It returns math.MaxInt64 for larger
// quantities, for which the result of Quantity.Value is undefined.
func roundUp(q resource.Quantity) int64 {
	if q.CmpInt64(math.MaxInt64) >= 0 {
		return math.MaxInt64
	}
	return q.Value()
}

// saturatingAdd returns a+b, or math.MaxInt64 on overflow. b must not be negative.
func saturatingAdd(a, b int64) int64 {
	if a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
}
