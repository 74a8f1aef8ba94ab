package policy

import (
	v1 "k8s.io/api/core/v1"

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
	if own := pod.PodLevelResources(p); own != nil {
		if pod.IsSupportedPodLevelResource(name) {
			asked = pod.Value(own.Requests[name])
		}
	} else {
		asked = containersRequest(&p.Spec, name)
	}
	if asked == 0 {
		return 0
	}
	return pod.AddSaturating(asked, pod.Value(p.Spec.Overhead[name]))
}

// containersRequest returns the larger of the sum of main containers and sidecars,
// and the largest sum of one init container and the sidecars before it.
func containersRequest(s *v1.PodSpec, name v1.ResourceName) int64 {
	var sum, sidecars, most int64
	for i := range s.Containers {
		sum = pod.AddSaturating(sum, pod.Value(s.Containers[i].Resources.Requests[name]))
	}
	for i := range s.InitContainers {
		c := &s.InitContainers[i]
		asked := pod.Value(c.Resources.Requests[name])
		most = max(most, pod.AddSaturating(sidecars, asked))
		if pod.IsRestartableInit(c) {
			sum, sidecars = pod.AddSaturating(sum, asked), pod.AddSaturating(sidecars, asked)
		}
	}
	return max(sum, most)
}
