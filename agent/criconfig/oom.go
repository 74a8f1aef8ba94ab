package criconfig

import (
	"math/big"

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
	asked := whole(request(&c.Resources, v1.ResourceMemory))
	if capacity <= 0 || asked == 0 {
		return oomBurstableMax
	}
	if asked >= capacity {
		return oomBurstableMin
	}
	share := new(big.Int).Mul(big.NewInt(1000), big.NewInt(asked))
	share.Quo(share, big.NewInt(capacity))
	return min(max(1000-share.Int64(), oomBurstableMin), oomBurstableMax)
}
