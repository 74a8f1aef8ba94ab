package policy

import (
	v1 "k8s.io/api/core/v1"

	"github.com/tinylet/tinylet/agent/pod"
)

// request is how much of one resource the pod asks for, in bytes, as ranking
// takes it (GetResourceRequestQuantity in pkg/api/v1/resource/helpers.go):
// what its containers ask for at the most; but the pod's own requests, and
// only these, where it has resources of its own. The overhead counts where
// anything is asked for. It differs in both from pod.Requests, which is for
// the node's bookkeeping, and makes no maps.
func request(p *v1.Pod, name v1.ResourceName) int64 {
	var asked int64
	if ownResources(p) {
		if pod.PodLevel(name) {
			asked = amount(p.Spec.Resources.Requests, name)
		}
	} else {
		asked = containersRequest(&p.Spec, name)
	}
	if asked == 0 {
		return 0
	}
	return plus(asked, amount(p.Spec.Overhead, name))
}

// containersRequest is the sum of main containers and sidecars, or one init
// container with the sidecars before it where that is more.
func containersRequest(s *v1.PodSpec, name v1.ResourceName) int64 {
	var sum, sidecars, most int64
	for i := range s.Containers {
		sum = plus(sum, amount(s.Containers[i].Resources.Requests, name))
	}
	for i := range s.InitContainers {
		c := &s.InitContainers[i]
		asked := amount(c.Resources.Requests, name)
		most = max(most, plus(sidecars, asked))
		if pod.IsRestartableInit(c) {
			sum, sidecars = plus(sum, asked), plus(sidecars, asked)
		}
	}
	return max(sum, most)
}

// ownResources says whether the pod has resources as a whole.
func ownResources(p *v1.Pod) bool {
	if p.Spec.Resources == nil {
		return false
	}
	for _, list := range [...]v1.ResourceList{p.Spec.Resources.Requests, p.Spec.Resources.Limits} {
		for name := range list {
			if pod.PodLevel(name) {
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
	return max(whole(q), 0)
}
