package stats

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tinylet/tinylet/agent/metrics"
	"github.com/tinylet/tinylet/agent/metrics/metricstest"
	"github.com/tinylet/tinylet/agent/pod"
)

func TestPodCounts(t *testing.T) {
	static := func(p *v1.Pod) *v1.Pod {
		p.Annotations = map[string]string{pod.AnnotationSource: pod.SourceFile}
		return p
	}
	withVolumes := func() *v1.Pod {
		return &v1.Pod{
			ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{pod.AnnotationSource: pod.SourceAPI}},
			Spec: v1.PodSpec{Volumes: []v1.Volume{
				{VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}}}, {VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}}},
				{VolumeSource: v1.VolumeSource{Secret: &v1.SecretVolumeSource{}}},
			}},
		}
	}
	ready := []v1.PodCondition{{Type: v1.PodReady, Status: v1.ConditionFalse}, {Type: v1.PodReadyToStartContainers, Status: v1.ConditionTrue}}
	running := v1.ContainerState{Running: &v1.ContainerStateRunning{}}
	ended := func(id string) v1.ContainerState {
		return v1.ContainerState{Terminated: &v1.ContainerStateTerminated{ContainerID: id}}
	}
	c := newPodCounts()
	c.count(static(&v1.Pod{}), &v1.PodStatus{Phase: v1.PodRunning, Conditions: ready, ContainerStatuses: []v1.ContainerStatus{
		{ContainerID: "containerd://a", State: running, LastTerminationState: ended("containerd://b")},
		{ContainerID: "containerd://c", State: ended("containerd://c"), LastTerminationState: ended("containerd://c")},
		{State: v1.ContainerState{Waiting: &v1.ContainerStateWaiting{}}},
		{State: ended("")},
	}})
	c.count(withVolumes(), &v1.PodStatus{Phase: v1.PodPending})
	c.count(withVolumes(), &v1.PodStatus{Phase: v1.PodRunning, Conditions: ready})
	c.count(withVolumes(), &v1.PodStatus{Phase: v1.PodFailed})
	want := []string{
		"kubelet_running_pods 2\n",
		"kubelet_running_containers{container_state=\"exited\"} 2\nkubelet_running_containers{container_state=\"running\"} 1\n",
		"kubelet_desired_pods{static=\"\"} 3\nkubelet_desired_pods{static=\"true\"} 1\n",
		"kubelet_active_pods{static=\"\"} 2\nkubelet_active_pods{static=\"true\"} 1\n",
		"volume_manager_total_volumes{plugin_name=\"kubernetes.io/empty-dir\",state=\"actual_state_of_world\"} 2\n",
		"volume_manager_total_volumes{plugin_name=\"kubernetes.io/empty-dir\",state=\"desired_state_of_world\"} 4\n",
		"volume_manager_total_volumes{plugin_name=\"kubernetes.io/secret\",state=\"desired_state_of_world\"} 2\n",
	}
	metricstest.WantLines(t, metricstest.Render(t, metrics.NewStream, func(out *metrics.Stream) { c.write(out, true) }), append(want, "kubelet_mirror_pods 1\n")...)
	metricstest.WantLines(t, metricstest.Render(t, metrics.NewStream, func(out *metrics.Stream) { c.write(out, false) }), want...)
}
