package policy

import (
	"fmt"

	v1 "k8s.io/api/core/v1"

	"github.com/tinylet/tinylet/agent/config/evictionapi"
	"github.com/tinylet/tinylet/agent/pod"
)

// memoryPressure is the taint of a node with memory pressure.
var memoryPressure = &v1.Taint{Key: v1.TaintNodeMemoryPressure, Effect: v1.TaintEffectNoSchedule}

// Admit reports whether a pod may be admitted under these node conditions. If not, it
// returns the message that belongs to Reason (Admit in
// pkg/kubelet/eviction/eviction_manager.go). Critical pods are always admitted. Under
// memory pressure alone, all pods are admitted except those of QoS class BestEffort
// that do not tolerate the memory pressure taint. Under any other pressure, none is.
func Admit(p *v1.Pod, under evictionapi.Conditions) (message string, ok bool) {
	switch {
	case under == evictionapi.Conditions{}, pod.IsCritical(p):
		return "", true
	case under == evictionapi.Conditions{Memory: true} && (pod.QOSClass(p) != v1.PodQOSBestEffort || pod.Tolerates(p, memoryPressure)):
		return "", true
	}
	return fmt.Sprintf("The node had condition: %s. ", under), false
}
