package cpuset

import (
	"fmt"

	v1 "k8s.io/api/core/v1"

	"github.com/tinylet/tinylet/agent/pod"
)

// CheckResize says why a pod cannot be resized in place under the static
// policy, and nil if it can: a Guaranteed one keeps the cpu of all its
// containers, also of those on the shared pool (Admit of podResizesAdmitHandler
// in pkg/kubelet/allocation/handlers.go, with the gate
// InPlacePodVerticalScalingExclusiveCPUs off). A resize that fails here is
// infeasible (v1.PodReasonInfeasible), not one to be tried again.
func CheckResize(allocated, wanted *v1.Pod) error {
	if pod.QoS(wanted) != v1.PodQOSGuaranteed {
		return nil
	}
	for c, kind := range pod.Containers(&wanted.Spec) {
		if kind == pod.Ephemeral {
			continue
		}
		var has v1.Container
		if old, _ := pod.Find(&allocated.Spec, c.Name); old != nil {
			has = *old
		}
		before, after := has.Resources.Requests[v1.ResourceCPU], c.Resources.Requests[v1.ResourceCPU]
		if before.Cmp(after) != 0 {
			return fmt.Errorf("container %q has %s of cpu and asks for %s: with cpuManagerPolicy %s the cpu of a Guaranteed pod cannot be resized in place; make the pod anew", c.Name, before.String(), after.String(), Static)
		}
	}
	return nil
}
