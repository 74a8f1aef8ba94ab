package agent

import (
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/tinylet/tinylet/agent/metrics"
	"github.com/tinylet/tinylet/agent/pod"
	"github.com/tinylet/tinylet/agent/podworker/volume"
)

// podCounts are the node's pods in numbers, by their newest statuses: those
// follow the runtime's events, where a list of what it holds is rare here.
type podCounts struct {
	desired, active map[bool]int // by whether they are static
	running         int
	containers      map[string]int // by the kubelet's names of their states
	// Volumes by plugin, of the pods that are wanted and of those that have
	// them: all of a pod's are made before its sandbox.
	wanted, made map[string]int
}

func (p *parts) countPods() *podCounts {
	c := &podCounts{
		desired: map[bool]int{}, active: map[bool]int{}, containers: map[string]int{"running": 0, "exited": 0},
		wanted: map[string]int{}, made: map[string]int{},
	}
	for _, e := range p.statuses.List() {
		c.count(e.Pod, e.Status)
	}
	return c
}

func (c *podCounts) count(p *v1.Pod, s *v1.PodStatus) {
	static := pod.IsStatic(p)
	c.desired[static]++
	ended := s.Phase == v1.PodSucceeded || s.Phase == v1.PodFailed
	if !ended {
		c.active[static]++
		countVolumes(c.wanted, p)
	}
	if hasSandbox(s) {
		c.running++
		countVolumes(c.made, p)
	}
	for status := range pod.ContainerStatuses(s) {
		switch {
		case status.State.Running != nil:
			c.containers["running"]++
		case status.State.Terminated != nil && idOf(status) != "":
			c.containers["exited"]++
		}
		// The one before is kept as evidence.
		if last := status.LastTerminationState.Terminated; last != nil && last.ContainerID != "" && last.ContainerID != status.ContainerID {
			c.containers["exited"]++
		}
	}
}

// hasSandbox says whether the pod's sandbox is ready.
func hasSandbox(s *v1.PodStatus) bool {
	for i := range s.Conditions {
		if c := &s.Conditions[i]; c.Type == v1.PodReadyToStartContainers {
			return c.Status == v1.ConditionTrue
		}
	}
	return false
}

func countVolumes(into map[string]int, p *v1.Pod) {
	for i := range p.Spec.Volumes {
		into[volume.Plugin(&p.Spec.Volumes[i].VolumeSource)]++
	}
}

// write writes the numbers under the kubelet's names; mirrored says that static
// pods are to have mirror pods.
func (c *podCounts) write(out *metrics.Stream, mirrored bool) {
	out.Family(metrics.KindGauge, "kubelet_running_pods", "Pods whose sandbox is ready.")
	out.Sample(float64(c.running))
	out.Family(metrics.KindGauge, "kubelet_running_containers", "Containers by their state.")
	for _, state := range slices.Sorted(maps.Keys(c.containers)) {
		out.Sample(float64(c.containers[state]), metrics.AppendLabel(nil, "container_state", state))
	}
	static := map[bool]string{true: "true"}
	out.Family(metrics.KindGauge, "kubelet_desired_pods", "Pods from a source, until nothing of them is left.")
	for _, is := range []bool{false, true} {
		out.Sample(float64(c.desired[is]), metrics.AppendLabel(nil, "static", static[is]))
	}
	out.Family(metrics.KindGauge, "kubelet_active_pods", "Pods from a source that have not ended.")
	for _, is := range []bool{false, true} {
		out.Sample(float64(c.active[is]), metrics.AppendLabel(nil, "static", static[is]))
	}
	if mirrored {
		out.Family(metrics.KindGauge, "kubelet_mirror_pods", "Mirror pods that there are to be.")
		out.Sample(float64(c.desired[true]))
	}
	out.Family(metrics.KindGauge, "volume_manager_total_volumes", "Volumes of pods, by whether they are wanted or made.")
	for _, state := range []struct {
		name  string
		count map[string]int
	}{{"actual_state_of_world", c.made}, {"desired_state_of_world", c.wanted}} {
		label := metrics.AppendLabel(nil, "state", state.name)
		for _, plugin := range slices.Sorted(maps.Keys(state.count)) {
			out.Sample(float64(state.count[plugin]), metrics.AppendLabel(nil, "plugin_name", plugin), label)
		}
	}
}
