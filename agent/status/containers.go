package status

import (
	"cmp"
	"math"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/tinylet/tinylet/agent/container"
	"github.com/tinylet/tinylet/agent/pod"
)

// Reasons of container states that are generated here rather than by the
// runtime.
const (
	reasonCreating     = "ContainerCreating"
	reasonInitializing = "PodInitializing"
	reasonCompleted    = "Completed"
	reasonError        = "Error"
	// reasonUnknown is the end of a container whose end nobody saw.
	reasonUnknown = "ContainerStatusUnknown"
)

// exitUnknown is the exit code reported where nobody knows it.
const exitUnknown = 137

// mainContainers are the statuses of the main containers by name.
func (g *generator) mainContainers() []v1.ContainerStatus {
	out := make([]v1.ContainerStatus, 0, len(g.Pod.Spec.Containers))
	for i := range g.Pod.Spec.Containers {
		c := &g.Pod.Spec.Containers[i]
		s := g.container(c, find(g.old.ContainerStatuses, c.Name), false)
		g.wait(c, &s, false)
		g.probe(&s)
		out = append(out, s)
	}
	slices.SortStableFunc(out, func(a, b v1.ContainerStatus) int { return cmp.Compare(a.Name, b.Name) })
	return out
}

// initContainers are the statuses of the init containers, in their order.
func (g *generator) initContainers() []v1.ContainerStatus {
	if len(g.Pod.Spec.InitContainers) == 0 {
		return nil
	}
	out := make([]v1.ContainerStatus, 0, len(g.Pod.Spec.InitContainers))
	for i := range g.Pod.Spec.InitContainers {
		c := &g.Pod.Spec.InitContainers[i]
		s := g.container(c, find(g.old.InitContainerStatuses, c.Name), true)
		g.wait(c, &s, true)
		g.probe(&s)
		if !pod.IsRestartableInit(c) {
			s.Ready = s.State.Terminated != nil && s.State.Terminated.ExitCode == 0
		}
		out = append(out, s)
	}
	return out
}

func find(list []v1.ContainerStatus, name string) *v1.ContainerStatus {
	for i := range list {
		if list[i].Name == name {
			return &list[i]
		}
	}
	return nil
}

// newest are the container that stands for a name and the one before it that
// was started, either nil if there is none.
func (g *generator) newest(name string) (current, previous *container.Container) {
	for i := range g.Observed.Containers {
		c := &g.Observed.Containers[i]
		if c.Name == name && (current == nil || c.State == container.StateRunning && current.State != container.StateRunning) {
			current = c
		}
	}
	for i := range g.Observed.Containers {
		c := &g.Observed.Containers[i]
		if c.Name == name && c != current && c.State != container.StateCreated {
			return current, c
		}
	}
	return current, nil
}

// container is the status of one container as the runtime shows it, without
// readiness and without reasons for a wait.
func (g *generator) container(c *v1.Container, old *v1.ContainerStatus, init bool) v1.ContainerStatus {
	current, previous := g.newest(c.Name)
	if current == nil {
		return g.absent(c, old, init)
	}
	s := v1.ContainerStatus{
		Name:               c.Name,
		State:              g.state(current),
		RestartCount:       int32(min(current.RestartCount, math.MaxInt32)),
		Image:              current.Image,
		ImageID:            cmp.Or(current.ImageRef, current.ImageID),
		ContainerID:        g.containerID(current),
		VolumeMounts:       volumeMounts(c),
		Resources:          &c.Resources,
		AllocatedResources: c.Resources.Requests,
	}
	if s.State.Waiting != nil && init {
		s.State.Waiting.Reason = reasonInitializing
	}
	if previous != nil {
		s.LastTerminationState = v1.ContainerState{Terminated: g.state(previous).Terminated}
	}
	if old != nil {
		s.RestartCount = max(s.RestartCount, old.RestartCount)
		if previous == nil {
			s.LastTerminationState = remembered(old, s.ContainerID)
		}
	}
	return s
}

// remembered is the end of the run before that of containerID as the old
// status tells it.
func remembered(old *v1.ContainerStatus, containerID string) v1.ContainerState {
	for _, t := range []*v1.ContainerStateTerminated{old.State.Terminated, old.LastTerminationState.Terminated} {
		if t != nil && t.ContainerID != containerID {
			return v1.ContainerState{Terminated: t}
		}
	}
	return v1.ContainerState{}
}

// absent is the status of a container that the runtime does not know: not
// there yet, or gone.
func (g *generator) absent(c *v1.Container, old *v1.ContainerStatus, init bool) v1.ContainerStatus {
	if old != nil && old.State.Terminated != nil {
		return *old
	}
	s := v1.ContainerStatus{Name: c.Name}
	if old != nil {
		s = *old
	}
	if s.ContainerID == "" {
		s.Image, s.VolumeMounts = c.Image, volumeMounts(c)
	}
	s.State = v1.ContainerState{Waiting: &v1.ContainerStateWaiting{Reason: reasonCreating}}
	if len(g.Pod.Spec.InitContainers) > 0 {
		s.State.Waiting.Reason = reasonInitializing
	}
	_, waits := g.Waiting[c.Name]
	switch {
	case init && !waits && !pod.IsRestartableInit(c) && g.mainExists():
		s.State = v1.ContainerState{Terminated: &v1.ContainerStateTerminated{
			Reason:  reasonCompleted,
			Message: "The init container is not known to the container runtime any more; the pod is initialized, so it has completed",
		}}
	case old != nil && old.State.Running != nil && s.LastTerminationState.Terminated == nil:
		s.LastTerminationState.Terminated = &v1.ContainerStateTerminated{
			Reason:   reasonUnknown,
			Message:  "The container was running and is not known to the container runtime any more",
			ExitCode: exitUnknown, ContainerID: s.ContainerID,
		}
		if g.Pod.DeletionTimestamp == nil {
			s.RestartCount = min(s.RestartCount, math.MaxInt32-1) + 1
		}
	}
	return s
}

// mainExists says whether a main container was created, which tells that the
// pod has been initialized.
func (g *generator) mainExists() bool {
	for i := range g.Pod.Spec.Containers {
		if g.Observed.Latest(g.Pod.Spec.Containers[i].Name) != nil {
			return true
		}
	}
	return false
}

func (g *generator) containerID(c *container.Container) string { return g.Runtime + "://" + c.ID }

// state is one container's state as the runtime shows it.
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
				Message:     "The container runtime does not know whether the container still runs",
				ExitCode:    exitUnknown,
				StartedAt:   timeOf(c.StartedAt),
				ContainerID: g.containerID(c),
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
		ContainerID: g.containerID(c),
	}
	if t.Reason == "" {
		t.Reason = reasonCompleted
		if t.ExitCode != 0 {
			t.Reason = reasonError
		}
	}
	m, read := g.Messages[c.ID]
	switch {
	case !read:
		t.Message = cmp.Or(g.told(t.ContainerID), t.Message)
	case m != "" && t.Message != "":
		t.Message += ": " + m
	case m != "":
		t.Message = m
	}
	return t
}

// told is the message that the old status has of a container's end.
func (g *generator) told(containerID string) string {
	for _, list := range [2][]v1.ContainerStatus{g.old.InitContainerStatuses, g.old.ContainerStatuses} {
		for i := range list {
			for _, t := range [2]*v1.ContainerStateTerminated{list[i].State.Terminated, list[i].LastTerminationState.Terminated} {
				if t != nil && t.ContainerID == containerID {
					return t.Message
				}
			}
		}
	}
	return ""
}

// wait puts in why a container that should be started is not.
func (g *generator) wait(c *v1.Container, s *v1.ContainerStatus, init bool) {
	r, ok := g.Waiting[c.Name]
	if !ok || s.State.Running != nil || g.Terminating || g.Terminated || g.Pod.DeletionTimestamp != nil {
		return
	}
	if t := s.State.Terminated; t != nil {
		if t.Reason != reasonUnknown && !restarts(g.Pod, c, t.ExitCode, init) {
			return
		}
		s.LastTerminationState = s.State
	}
	s.State = v1.ContainerState{Waiting: &v1.ContainerStateWaiting{Reason: r.Reason, Message: r.Message}}
}

// probe fills in started and ready.
func (g *generator) probe(s *v1.ContainerStatus) {
	result := Probe{}
	if s.State.Running != nil {
		result = Probe{Started: true, Ready: true}
		_, id, _ := strings.Cut(s.ContainerID, "://")
		if p, ok := g.Probes[id]; ok {
			result = p
		}
	}
	s.Started = &result.Started
	s.Ready = result.Started && result.Ready
}

// volumeMounts repeats the spec's mounts. None is read-only recursively: that
// is not built.
func volumeMounts(c *v1.Container) []v1.VolumeMountStatus {
	if len(c.VolumeMounts) == 0 {
		return nil
	}
	out := make([]v1.VolumeMountStatus, 0, len(c.VolumeMounts))
	for i := range c.VolumeMounts {
		m := v1.VolumeMountStatus{
			Name:      c.VolumeMounts[i].Name,
			MountPath: c.VolumeMounts[i].MountPath,
			ReadOnly:  c.VolumeMounts[i].ReadOnly,
		}
		if m.ReadOnly {
			disabled := v1.RecursiveReadOnlyDisabled
			m.RecursiveReadOnly = &disabled
		}
		out = append(out, m)
	}
	return out
}
