package pod

import (
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
)

// Summary summarizes a pod as kubectl get pods does
// (pkg/printers/internalversion: printPod), with two differences: a pod that
// the agent is stopping is Terminating even if the API server has not deleted it,
// and the last restart is the newest one of all containers.
type Summary struct {
	// Ready and Total count the main containers and the sidecars.
	Ready, Total int
	// Status is the STATUS column of kubectl get pods: a phase, or the reason
	// of the pod or of a container.
	Status      string
	Restarts    int
	LastRestart time.Time // zero if there was none
}

// Summarize summarizes the pod and its status. stopping means that the agent is
// stopping the pod.
func Summarize(p *v1.Pod, stopping bool) Summary {
	s := Summary{Total: len(p.Spec.Containers), Status: string(p.Status.Phase)}
	if p.Status.Reason != "" {
		s.Status = p.Status.Reason
	}
	waits := s.initContainers(p)
	if !waits || conditionTrue(p, v1.PodInitialized) {
		s.containers(p)
	}
	terminal := IsTerminal(p.Status.Phase)
	if (p.DeletionTimestamp != nil || stopping) && !terminal {
		s.Status = "Terminating"
	}
	if s.Status == "" {
		s.Status = string(v1.PodPending)
	}
	return s
}

// initContainers evaluates the init containers in order, up to the one that the
// pod waits for. waits reports whether there is one.
func (s *Summary) initContainers(p *v1.Pod) (waits bool) {
	sidecars := map[string]bool{}
	for i := range p.Spec.InitContainers {
		if c := &p.Spec.InitContainers[i]; IsRestartableInit(c) {
			sidecars[c.Name] = true
			s.Total++
		}
	}
	var sidecarRestarts int
	var lastSidecarRestart time.Time
	for i := range p.Status.InitContainerStatuses {
		c := &p.Status.InitContainerStatuses[i]
		s.count(c)
		if sidecars[c.Name] {
			sidecarRestarts += int(c.RestartCount)
			lastSidecarRestart = later(lastSidecarRestart, LastFinishedAt(c))
		}
		if t := c.State.Terminated; t != nil && t.ExitCode == 0 {
			continue
		}
		if sidecars[c.Name] && c.Started != nil && *c.Started {
			if c.Ready {
				s.Ready++
			}
			continue
		}
		s.Status = "Init:" + initReason(c, i, len(p.Spec.InitContainers))
		waits = true
		break
	}
	if !waits || conditionTrue(p, v1.PodInitialized) {
		// After initialization only the restarts of sidecars count.
		s.Restarts, s.LastRestart = sidecarRestarts, lastSidecarRestart
	}
	return waits
}

// initReason returns the text after "Init:".
func initReason(c *v1.ContainerStatus, done, all int) string {
	if t := c.State.Terminated; t != nil {
		return TerminationReason(t)
	}
	if w := c.State.Waiting; w != nil && w.Reason != "" && w.Reason != "PodInitializing" {
		return w.Reason
	}
	return fmt.Sprintf("%d/%d", done, all)
}

// containers evaluates the main containers. The first one with a reason determines
// the status.
func (s *Summary) containers(p *v1.Pod) {
	running := false
	for i := len(p.Status.ContainerStatuses) - 1; i >= 0; i-- {
		c := &p.Status.ContainerStatuses[i]
		s.count(c)
		switch {
		case c.State.Waiting != nil && c.State.Waiting.Reason != "":
			s.Status = c.State.Waiting.Reason
		case c.State.Terminated != nil:
			s.Status = TerminationReason(c.State.Terminated)
		case c.Ready && c.State.Running != nil:
			running = true
			s.Ready++
		}
	}
	if s.Status == "Completed" && running {
		s.Status = "NotReady"
		if conditionTrue(p, v1.PodReady) {
			s.Status = string(v1.PodRunning)
		}
	}
}

func (s *Summary) count(c *v1.ContainerStatus) {
	s.Restarts += int(c.RestartCount)
	s.LastRestart = later(s.LastRestart, LastFinishedAt(c))
}

// TerminationReason returns the reason why a container terminated, else its signal or its
// exit code.
func TerminationReason(t *v1.ContainerStateTerminated) string {
	switch {
	case t.Reason != "":
		return t.Reason
	case t.Signal != 0:
		return fmt.Sprintf("Signal:%d", t.Signal)
	}
	return fmt.Sprintf("ExitCode:%d", t.ExitCode)
}

// LastFinishedAt returns when the previous container attempt finished, or the zero time.
func LastFinishedAt(c *v1.ContainerStatus) time.Time {
	if t := c.LastTerminationState.Terminated; t != nil {
		return t.FinishedAt.Time
	}
	return time.Time{}
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

func conditionTrue(p *v1.Pod, kind v1.PodConditionType) bool {
	c := FindCondition(p.Status.Conditions, kind)
	return c != nil && c.Status == v1.ConditionTrue
}
