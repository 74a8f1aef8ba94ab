package podstatus

import (
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/tinylet/tinylet/agent/container"
	"github.com/tinylet/tinylet/agent/pod"
)

// The kubelet's reasons and messages for a pod whose containers are all
// restarted because one exited (KEP-5532; pkg/kubelet/kubelet_pods.go,
// pkg/kubelet/status).
const (
	reasonRestartingAll  = "RestartingAllContainers"
	messageRestartingAll = "The container was removed to restart all containers of the pod"
	reasonRestartStarted = "RestartAllContainersStarted"
	messageRestartRule   = "container exited with restart policy rule"
)

// restartAll sets restarting while a container that triggered the restart of all containers
// exists. It sets removing for one more status, by the old condition, after that container
// was removed.
func (g *generator) restartAll() {
	if !pod.HasRestartAllRule(&g.Pod.Spec) || g.isStopping() || pod.IsTerminal(g.old.Phase) || pod.IsTerminal(g.api.Phase) {
		return
	}
	c := pod.FindCondition(g.old.Conditions, v1.AllContainersRestarting)
	g.restarting = g.triggersRestartAll()
	g.removing = g.restarting || c != nil && c.Status == v1.ConditionTrue
}

// isStopping reports whether the pod is terminating or has terminated.
func (g *generator) isStopping() bool {
	return g.Terminating || g.Terminated || g.Failed != nil || g.Pod.DeletionTimestamp != nil
}

// triggersRestartAll reports whether a container exited by a rule that restarts all
// containers. The exit of an init container counts only if a main container runs, will be
// started, or exited later.
func (g *generator) triggersRestartAll() bool {
	var asked, ended time.Time // the first exit of an init container that triggers the restart, the last of a main one that ended for good
	asks, open := false, false // open: a main container runs or will run
	for c, kind := range pod.Containers(&g.Pod.Spec) {
		current, _ := g.newest(c.Name)
		exited := current != nil && current.State == container.StateExited
		switch {
		case kind == pod.Ephemeral:
		case kind == pod.Main && exited && !pod.ShouldRestart(&g.Pod.Spec, c, current.ExitCode):
			if current.FinishedAt.After(ended) {
				ended = current.FinishedAt
			}
		case exited && pod.RestartsAllContainers(c, current.ExitCode):
			if kind == pod.Main {
				return true
			}
			if !asks || current.FinishedAt.Before(asked) {
				asks, asked = true, current.FinishedAt
			}
		case kind == pod.Main:
			open = true
		}
	}
	return asks && (open || ended.After(asked))
}

// removed returns the status of a container that was removed to be restarted
// with all the others.
func removed(old *v1.ContainerStatus) v1.ContainerStatus {
	s := *old
	end := v1.ContainerStateTerminated{
		Reason: reasonRestartingAll, Message: messageRestartingAll,
		ExitCode: exitUnknown, ContainerID: old.ContainerID,
	}
	switch was := old.State; {
	case was.Terminated != nil:
		end.StartedAt, end.FinishedAt = was.Terminated.StartedAt, was.Terminated.FinishedAt
	case was.Running != nil:
		end.StartedAt = was.Running.StartedAt
	}
	s.State = v1.ContainerState{Waiting: &v1.ContainerStateWaiting{Reason: reasonRestartingAll, Message: messageRestartingAll}}
	s.LastTerminationState = v1.ContainerState{Terminated: &end}
	s.RestartCount = oneMore(s.RestartCount)
	return s
}

// allRestarting returns the condition AllContainersRestarting of a pod that has
// such rules.
func (g *generator) allRestarting(s *v1.PodStatus) v1.PodCondition {
	c := v1.PodCondition{Type: v1.AllContainersRestarting, Status: v1.ConditionFalse}
	switch {
	case s.Phase == v1.PodSucceeded:
		c.Reason = reasonPodCompleted
	case s.Phase == v1.PodFailed:
		c.Reason = reasonPodFailed
	case g.restarting:
		c.Status, c.Reason, c.Message = v1.ConditionTrue, reasonRestartStarted, messageRestartRule
	}
	return c
}
