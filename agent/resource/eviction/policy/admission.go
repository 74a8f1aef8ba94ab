package policy

import (
	"fmt"

	v1 "k8s.io/api/core/v1"

	"github.com/tinylet/tinylet/agent/config/evictionapi"
	"github.com/tinylet/tinylet/agent/pod"
)

// Admit reports whether a pod may be admitted under these node conditions. If not, it
// returns the message that belongs to Reason (Admit in
// pkg/kubelet/eviction/eviction_manager.go). Critical pods are always admitted. Under
// memory pressure alone, all pods are admitted except those of QoS class BestEffort
// that do not tolerate the memory pressure taint. Under any other pressure, none is.
func Admit(p *v1.Pod, under evictionapi.Conditions) (message string, ok bool) {
	switch {
	case under == evictionapi.Conditions{}, pod.IsCritical(p):
		return "", true
	case under == evictionapi.Conditions{Memory: true} && (pod.QOSClass(p) != v1.PodQOSBestEffort || toleratesMemoryPressure(p)):
		return "", true
	}
	return fmt.Sprintf("The node had condition: %s. ", under), false
}

// toleratesMemoryPressure reports whether the pod tolerates the node's memory
// pressure taint, which has no value. The numeric operators Lt and Gt, alpha in 1.36,
// do not match it.
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
