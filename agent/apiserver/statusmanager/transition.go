package statusmanager

import (
	"fmt"

	v1 "k8s.io/api/core/v1"

	"github.com/tinylet/tinylet/agent/pod"
)

// transition returns an error if a container that must not restart is terminated in
// before but not in after (checkContainerStateTransition in
// pkg/kubelet/status/status_manager.go). Readers of before may have acted on the
// termination, so such a status must not be sent.
func transition(spec *v1.PodSpec, before, after *v1.PodStatus) error {
	if spec.RestartPolicy == v1.RestartPolicyAlways || pod.HasRestartAllRule(spec) {
		return nil
	}
	if err := revived(spec, spec.Containers, before.ContainerStatuses, after.ContainerStatuses); err != nil {
		return err
	}
	return revived(spec, spec.InitContainers, before.InitContainerStatuses, after.InitContainerStatuses)
}

func revived(spec *v1.PodSpec, containers []v1.Container, before, after []v1.ContainerStatus) error {
	for i := range before {
		end := before[i].State.Terminated
		if end == nil || mayRestart(spec, containers, before[i].Name, end.ExitCode) {
			continue
		}
		for j := range after {
			if after[j].Name == before[i].Name && after[j].State.Terminated == nil {
				return fmt.Errorf("terminated container %s attempted illegal transition to non-terminated state", after[j].Name)
			}
		}
	}
	return nil
}

func mayRestart(spec *v1.PodSpec, containers []v1.Container, name string, exitCode int32) bool {
	for i := range containers {
		if c := &containers[i]; c.Name == name {
			return pod.ShouldRestart(spec, c, exitCode)
		}
	}
	return exitCode != 0 && spec.RestartPolicy == v1.RestartPolicyOnFailure
}
