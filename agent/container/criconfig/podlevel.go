package criconfig

import (
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/tinylet/tinylet/agent/pod"
)

// podLevel returns the pod-level resources (KEP-2837), or nil if none applies.
func podLevel(p *v1.Pod) *v1.ResourceRequirements {
	if r := p.Spec.Resources; r != nil && (anyPodLevel(r.Requests) || anyPodLevel(r.Limits)) {
		return r
	}
	return nil
}

// anyPodLevel reports whether list has a resource that can be set for a whole pod.
func anyPodLevel(list v1.ResourceList) bool {
	for name := range list {
		if pod.IsSupportedPodLevelResource(name) {
			return true
		}
	}
	return false
}

// containersOnly returns the pod without pod-level resources and overhead,
// overheadLess the pod without overhead. Callers must not modify them.
func containersOnly(p *v1.Pod) *v1.Pod {
	return &v1.Pod{Spec: v1.PodSpec{InitContainers: p.Spec.InitContainers, Containers: p.Spec.Containers}}
}

func withoutOverhead(p *v1.Pod) *v1.Pod {
	bare := containersOnly(p)
	bare.Spec.Resources = p.Spec.Resources
	return bare
}

func isHugePages(name v1.ResourceName) bool {
	return strings.HasPrefix(string(name), v1.ResourceHugePagesPrefix)
}

func positive(list v1.ResourceList, name v1.ResourceName) bool {
	q := list[name]
	return q.Sign() > 0
}
