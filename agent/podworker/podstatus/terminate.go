package podstatus

import (
	v1 "k8s.io/api/core/v1"

	"github.com/tinylet/tinylet/agent/pod"
)

// terminate sets a termination state for every container that may have run,
// once the pod has been stopped (TerminatePod in
// pkg/kubelet/status/status_manager.go). An exit that was not observed counts
// as an error. Init containers that were not reached stay as they are.
func (g *generator) terminate(s *v1.PodStatus) {
	if g.initialized(s) {
		for i := range s.ContainerStatuses {
			markLost(&s.ContainerStatuses[i])
		}
	}
	last := len(s.InitContainerStatuses) - 1
	for ; last >= 0; last-- {
		if cs := &s.InitContainerStatuses[last]; cs.State.Waiting == nil || ended(cs) != nil {
			break
		}
	}
	for i := range s.InitContainerStatuses[:last+1] {
		markLost(&s.InitContainerStatuses[i])
	}
}

// initialized reports whether the main containers could have been started.
func (g *generator) initialized(s *v1.PodStatus) bool {
	for i := range s.ContainerStatuses {
		if cs := &s.ContainerStatuses[i]; cs.State.Waiting == nil || ended(cs) != nil {
			return true
		}
	}
	n := len(g.Pod.Spec.InitContainers)
	if n == 0 {
		return true
	}
	last := &s.InitContainerStatuses[n-1]
	if pod.IsRestartableInit(&g.Pod.Spec.InitContainers[n-1]) {
		return *last.Started
	}
	end := ended(last)
	return end != nil && end.ExitCode == 0
}

func markLost(s *v1.ContainerStatus) {
	if s.State.Terminated != nil {
		return
	}
	s.State = v1.ContainerState{Terminated: &v1.ContainerStateTerminated{
		Reason:   reasonUnknown,
		Message:  "The container could not be located when the pod was terminated",
		ExitCode: exitUnknown, ContainerID: s.ContainerID,
	}}
	s.Started, s.Ready = new(bool), false
}
