package criconfig

import (
	"math"
	"math/big"
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/tinylet/tinylet/agent/pod"
)

// The kernel's oom_score_adj ranges from -1000 (never killed) to 1000.
const (
	oomGuaranteed = -997
	oomBestEffort = 1000
	// A Burstable container stays strictly between the two.
	oomBurstableMin = 1000 + oomGuaranteed
	oomBurstableMax = oomBestEffort - 1

	nodeCritical = "system-node-critical" // pkg/apis/scheduling/types.go
)

// oomScoreAdj returns a container's oom_score_adj. For a Burstable container it is lower if
// the container requests a larger share of the node's memory, capacity in bytes. So a
// container within its request is killed after one beyond its request
// (pkg/kubelet/qos/policy.go).
func oomScoreAdj(p *v1.Pod, c *v1.Container, capacity int64) int64 {
	if pod.IsCritical(p) && p.Spec.PriorityClassName == nodeCritical {
		return oomGuaranteed
	}
	switch pod.QOSClass(p) {
	case v1.PodQOSGuaranteed:
		return oomGuaranteed
	case v1.PodQOSBestEffort:
		return oomBestEffort
	case v1.PodQOSBurstable:
	}
	asked := effectiveMemoryRequest(p, c)
	if capacity <= 0 || asked <= 0 {
		return oomBurstableMax
	}
	if asked >= capacity {
		return oomBurstableMin
	}
	share := new(big.Int).Mul(big.NewInt(1000), big.NewInt(asked))
	share.Quo(share, big.NewInt(capacity))
	return min(max(1000-share.Int64(), oomBurstableMin), oomBurstableMax)
}

// effectiveMemoryRequest returns the container's memory request in bytes, plus an equal part
// of the pod-level request beyond those of the containers (KEP-2837). The request of a
// sidecar counts as at least the smallest request of the pod's containers, so that it is not
// killed before them (KEP-753).
func effectiveMemoryRequest(p *v1.Pod, c *v1.Container) int64 {
	asked := memoryBytes(c.Resources.Requests)
	if isSidecar(p, c) && len(p.Spec.Containers) > 0 {
		least := int64(math.MaxInt64)
		for i := range p.Spec.Containers {
			least = min(least, memoryBytes(p.Spec.Containers[i].Resources.Requests))
		}
		asked = max(asked, least)
	}
	return pod.AddSaturating(asked, podLevelShare(p))
}

// podLevelShare returns the pod-level memory request in bytes beyond those of the containers,
// divided by the number of containers and init containers.
func podLevelShare(p *v1.Pod) int64 {
	n := int64(len(p.Spec.Containers) + len(p.Spec.InitContainers))
	if pod.PodLevelResources(p) == nil || n == 0 {
		return 0
	}
	rest := memoryBytes(p.Spec.Resources.Requests) - memoryBytes(pod.Requests(containersOnly(p)))
	return max(rest, 0) / n
}

func memoryBytes(list v1.ResourceList) int64 {
	return pod.Value(list[v1.ResourceMemory])
}

func isSidecar(p *v1.Pod, c *v1.Container) bool {
	return pod.IsRestartableInit(c) &&
		slices.ContainsFunc(p.Spec.InitContainers, func(i v1.Container) bool { return i.Name == c.Name })
}
