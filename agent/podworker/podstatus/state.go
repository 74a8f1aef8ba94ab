package podstatus

import (
	"cmp"

	v1 "k8s.io/api/core/v1"

	"github.com/tinylet/tinylet/agent/container"
	"github.com/tinylet/tinylet/agent/pod"
)

func containerID(c *container.Container) string { return "containerd://" + c.ID }

// state returns one container's state as the runtime reports it.
func (g *generator) state(c *container.Container) v1.ContainerState {
	switch c.State {
	case container.StateRunning:
		return v1.ContainerState{Running: &v1.ContainerStateRunning{StartedAt: timeOf(c.StartedAt)}}
	case container.StateExited:
		return v1.ContainerState{Terminated: g.terminated(c)}
	case container.StateUnknown:
		if !c.StartedAt.IsZero() {
			return v1.ContainerState{Terminated: &v1.ContainerStateTerminated{
				Reason:      reasonUnknown,
				Message:     "The container runtime reports the state of the container as unknown",
				ExitCode:    exitUnknown,
				StartedAt:   timeOf(c.StartedAt),
				ContainerID: containerID(c),
			}}
		}
	case container.StateCreated:
	}
	return v1.ContainerState{Waiting: &v1.ContainerStateWaiting{Reason: reasonCreating}}
}

func (g *generator) terminated(c *container.Container) *v1.ContainerStateTerminated {
	t := &v1.ContainerStateTerminated{
		ExitCode:    c.ExitCode,
		Reason:      c.Reason,
		Message:     c.Message,
		StartedAt:   timeOf(c.StartedAt),
		FinishedAt:  timeOf(c.FinishedAt),
		ContainerID: containerID(c),
	}
	if t.Reason == "" {
		t.Reason = reasonCompleted
		if t.ExitCode != 0 {
			t.Reason = reasonError
		}
	}
	old := g.oldTermination(t.ContainerID)
	if old.Reason == container.ReasonOOMKilled {
		t.Reason = container.ReasonOOMKilled // the kernel's OOM counters are gone by now
	}
	m, read := g.Messages[c.ID]
	switch {
	case !read:
		t.Message = cmp.Or(old.Message, t.Message)
	case m != "" && t.Message != "":
		t.Message += ": " + m
	case m != "":
		t.Message = m
	}
	return t
}

// oldTermination returns the termination state that the old status has of a container, or
// the zero value if it has none.
func (g *generator) oldTermination(containerID string) v1.ContainerStateTerminated {
	for c := range pod.ContainerStatuses(g.old) {
		for _, t := range [2]*v1.ContainerStateTerminated{c.State.Terminated, c.LastTerminationState.Terminated} {
			if t != nil && t.ContainerID == containerID {
				return *t
			}
		}
	}
	return v1.ContainerStateTerminated{}
}
