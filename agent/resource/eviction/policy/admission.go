package policy

import "github.com/tinylet/tinylet/agent/config/evictionapi"

import (
	"fmt"

	v1 "k8s.io/api/core/v1"

	"github.com/tinylet/tinylet/agent/pod"
)

// Admit says whether a pod may come to a node under these conditions, and if
// not, the message that goes with Reason (Admit in
// pkg/kubelet/eviction/eviction_manager.go). Critical pods always may. Under
// pressure of memory alone, all may but those of class BestEffort that do not
// tolerate its taint; under any other, none.
func Admit(p *v1.Pod, under evictionapi.Conditions) (message string, ok bool) {
	switch {
	case under == evictionapi.Conditions{}, pod.IsCritical(p):
		return "", true
	case under == evictionapi.Conditions{Memory: true} && (pod.QoS(p) != v1.PodQOSBestEffort || toleratesMemoryPressure(p)):
		return "", true
	}
	return fmt.Sprintf("The node had condition: %s. ", under), false
}

// toleratesMemoryPressure compares with the taint that the node gets, which
// has no value. The numeric operators Lt and Gt are an alpha of 1.36 and cover
// none.
func toleratesMemoryPressure(p *v1.Pod) bool {
	for i := range p.Spec.Tolerations {
		t := &p.Spec.Tolerations[i]
		if (t.Effect != "" && t.Effect != v1.TaintEffectNoSchedule) || (t.Key != "" && t.Key != v1.TaintNodeMemoryPressure) {
			continue
		}
		switch t.Operator {
		case v1.TolerationOpExists:
			return true
		case "", v1.TolerationOpEqual:
			if t.Value == "" {
				return true
			}
		default:
		}
	}
	return false
}
