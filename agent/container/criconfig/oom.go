package criconfig

import (
	"math"
	"math/big"
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/tinylet/tinylet/agent/pod"
)

// The kernel's oom_score_adj runs from -1000, never killed, to 1000.
const (
	oomGuaranteed = -997
	oomBestEffort = 1000
	// A Burstable container stays between the two, off both by a little.
	oomBurstableMin = 1000 + oomGuaranteed
	oomBurstableMax = oomBestEffort - 1

	nodeCritical = "system-node-critical" // pkg/apis/scheduling/types.go
)

// oomScoreAdj protects a Burstable container by the share of the machine's
// memory that it asks for, so that one within its request is killed after
// one beyond (pkg/kubelet/qos/policy.go).
func oomScoreAdj(p *v1.Pod, c *v1.Container, capacity int64) int64 {
	if pod.IsCritical(p) && p.Spec.PriorityClassName == nodeCritical {
		return oomGuaranteed
	}
	switch pod.QoS(p) {
	case v1.PodQOSGuaranteed:
		return oomGuaranteed
	case v1.PodQOSBestEffort:
		return oomBestEffort
	case v1.PodQOSBurstable:
	}
	asked := memoryAsked(p, c)
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

// memoryAsked is the container's request in bytes, with an equal part of what
// the pod asks for beyond its containers (KEP-2837). A sidecar counts as
// asking for no less than the least of the containers it serves, so that it
// does not die before them (KEP-753).
func memoryAsked(p *v1.Pod, c *v1.Container) int64 {
	asked := memory(c.Resources.Requests)
	if isSidecar(p, c) && len(p.Spec.Containers) > 0 {
		least := int64(math.MaxInt64)
		for i := range p.Spec.Containers {
			least = min(least, memory(p.Spec.Containers[i].Resources.Requests))
		}
		asked = max(asked, least)
	}
	part := partOfRest(p)
	if part > math.MaxInt64-asked {
		return math.MaxInt64
	}
	return asked + part
}

// partOfRest is what the pod asks for and its containers do not, divided
// among them.
func partOfRest(p *v1.Pod) int64 {
	n := int64(len(p.Spec.Containers) + len(p.Spec.InitContainers))
	if podLevel(p) == nil || n == 0 {
		return 0
	}
	rest := memory(p.Spec.Resources.Requests) - memory(pod.Requests(containersOnly(p)))
	return max(rest, 0) / n
}

func memory(list v1.ResourceList) int64 {
	return whole(list[v1.ResourceMemory])
}

func isSidecar(p *v1.Pod, c *v1.Container) bool {
	return pod.IsRestartableInit(c) &&
		slices.ContainsFunc(p.Spec.InitContainers, func(i v1.Container) bool { return i.Name == c.Name })
}
