package stats

import (
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/tinylet/tinylet/agent/metrics"
	"github.com/tinylet/tinylet/agent/pod"
	"github.com/tinylet/tinylet/agent/podworker/volume"
)

// podCounts counts the pods by their newest statuses, which follow the runtime's events.
type podCounts struct {
	desired, active map[bool]int // by whether they are static
	running         int
	containers      map[string]int // by the kubelet's names of their states
	// Volumes by plugin: of the active pods, and of those whose volumes are set up. All
	// volumes of a pod are set up before its sandbox is created.
	desiredVolumes, actualVolumes map[string]int
}

// WritePodCounts writes the metrics of the numbers of pods, containers and volumes under the
// kubelet's names. mirrored means that static pods have mirror pods.
func WritePodCounts(out *metrics.Stream, entries []pod.Entry, mirrored bool) {
	c := newPodCounts()
	for i := range entries {
		c.count(entries[i].Pod, entries[i].Status)
	}
	c.write(out, mirrored)
}

func newPodCounts() *podCounts {
	return &podCounts{
		desired: map[bool]int{}, active: map[bool]int{}, containers: map[string]int{"running": 0, "exited": 0},
		desiredVolumes: map[string]int{}, actualVolumes: map[string]int{},
	}
}

func (c *podCounts) count(p *v1.Pod, s *v1.PodStatus) {
	static := pod.IsStatic(p)
	c.desired[static]++
	ended := pod.IsTerminal(s.Phase)
	if !ended {
		c.active[static]++
		countVolumes(c.desiredVolumes, p)
	}
	if ready := pod.FindCondition(s.Conditions, v1.PodReadyToStartContainers); ready != nil && ready.Status == v1.ConditionTrue {
		c.running++
		countVolumes(c.actualVolumes, p)
	}
	for status := range pod.ContainerStatuses(s) {
		switch {
		case status.State.Running != nil:
			c.containers["running"]++
		case status.State.Terminated != nil && pod.ContainerID(status) != "":
			c.containers["exited"]++
		}
		// The previous attempt is kept.
		if last := status.LastTerminationState.Terminated; last != nil && last.ContainerID != "" && last.ContainerID != status.ContainerID {
			c.containers["exited"]++
		}
	}
}

func countVolumes(into map[string]int, p *v1.Pod) {
	for i := range p.Spec.Volumes {
		into[volume.Plugin(&p.Spec.Volumes[i].VolumeSource)]++
	}
}

func (c *podCounts) write(out *metrics.Stream, mirrored bool) {
	out.Family(metrics.KindGauge, "kubelet_running_pods", "Pods whose sandbox is ready.")
	out.Sample(float64(c.running))
	out.Family(metrics.KindGauge, "kubelet_running_containers", "Containers by their state.")
	for _, state := range slices.Sorted(maps.Keys(c.containers)) {
		out.Sample(float64(c.containers[state]), metrics.AppendLabel(nil, "container_state", state))
	}
	static := map[bool]string{true: "true"}
	out.Family(metrics.KindGauge, "kubelet_desired_pods", "Pods of all sources, until they are removed completely.")
	for _, is := range []bool{false, true} {
		out.Sample(float64(c.desired[is]), metrics.AppendLabel(nil, "static", static[is]))
	}
	out.Family(metrics.KindGauge, "kubelet_active_pods", "Pods of all sources that are not terminal.")
	for _, is := range []bool{false, true} {
		out.Sample(float64(c.active[is]), metrics.AppendLabel(nil, "static", static[is]))
	}
	if mirrored {
		out.Family(metrics.KindGauge, "kubelet_mirror_pods", "Mirror pods of the desired static pods.")
		out.Sample(float64(c.desired[true]))
	}
	out.Family(metrics.KindGauge, "volume_manager_total_volumes", "Volumes of pods in the desired and the actual state.")
	for _, state := range []struct {
		name  string
		count map[string]int
	}{{"actual_state_of_world", c.actualVolumes}, {"desired_state_of_world", c.desiredVolumes}} {
		label := metrics.AppendLabel(nil, "state", state.name)
		for _, plugin := range slices.Sorted(maps.Keys(state.count)) {
			out.Sample(float64(state.count[plugin]), metrics.AppendLabel(nil, "plugin_name", plugin), label)
		}
	}
}
