package nodestatus

import (
	"fmt"
	"maps"

	v1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/tinylet/tinylet/agent/node/machine"
	"github.com/tinylet/tinylet/agent/pod"
)

// resources sets capacity and allocatable (MachineInfo in
// pkg/kubelet/nodestatus/setters.go). Resources that others advertise on the node
// stay. With an error, allocatable does not change.
func resources(s *v1.NodeStatus, in *Inputs) error {
	k := &in.Config.Kubelet
	capacity := make(v1.ResourceList)
	maps.Copy(capacity, s.Capacity)
	for name, q := range in.Capacity {
		if name == v1.ResourceEphemeralStorage && !isolatesStorage(in) {
			continue
		}
		capacity[name] = q.DeepCopy()
	}
	s.Capacity = capacity

	computed, err := machine.Allocatable(capacity, machine.Reserved{Kube: k.KubeReserved, System: k.SystemReserved, EvictionHard: k.EvictionHard})
	if err != nil {
		return fmt.Errorf("compute node allocatable: %w", err)
	}
	for name, q := range s.Allocatable {
		if _, ok := computed[name]; !ok && !pod.IsExtendedResource(name) {
			computed[name] = q
		}
	}
	s.Allocatable = computed
	return nil
}

func isolatesStorage(in *Inputs) bool {
	return ptr.Deref(in.Config.Kubelet.LocalStorageCapacityIsolation, true)
}
