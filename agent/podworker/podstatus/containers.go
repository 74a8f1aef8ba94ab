package podstatus

import (
	"cmp"
	"math"
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/tinylet/tinylet/agent/container"
	"github.com/tinylet/tinylet/agent/pod"
)

// Reasons of container states that this package sets rather than the runtime.
const (
	reasonCreating     = "ContainerCreating"
	reasonInitializing = "PodInitializing"
	reasonCompleted    = "Completed"
	reasonError        = "Error"
	// reasonUnknown is the reason of a container whose exit was not observed.
	reasonUnknown = "ContainerStatusUnknown"
)

// exitUnknown is the exit code that is reported if the real one is unknown.
const exitUnknown = 137

// containers sets the statuses of all containers: those of init containers in the
// order of the spec, the others by name. Ephemeral containers have no probes, so
// none is reported as started or ready.
func (g *generator) containers(s *v1.PodStatus) {
	for c, kind := range pod.Containers(&g.Pod.Spec) {
		list, old := statusList(s, kind), pod.FindContainerStatus(g.old, c.Name)
		cs := g.container(c, old, kind)
		g.wait(c, &cs, kind)
		if kind != pod.Ephemeral {
			g.probe(c, &cs, old)
		}
		if kind == pod.Init && !pod.IsRestartableInit(c) {
			cs.Ready = cs.State.Terminated != nil && cs.State.Terminated.ExitCode == 0
		}
		*list = append(*list, cs)
	}
	sortByName(s.ContainerStatuses)
	sortByName(s.EphemeralContainerStatuses)
}

func sortByName(list []v1.ContainerStatus) {
	slices.SortStableFunc(list, func(a, b v1.ContainerStatus) int { return cmp.Compare(a.Name, b.Name) })
}

// statusList returns the list of s for containers of a kind.
func statusList(s *v1.PodStatus, kind pod.ContainerType) *[]v1.ContainerStatus {
	switch kind {
	case pod.Init:
		return &s.InitContainerStatuses
	case pod.Ephemeral:
		return &s.EphemeralContainerStatuses
	default:
		return &s.ContainerStatuses
	}
}

// newest returns the container that represents a name, and the one before it
// that was started; either is nil if there is none.
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

// container returns the status of one container by the runtime's state, without
// readiness and without wait reasons.
func (g *generator) container(c *v1.Container, old *v1.ContainerStatus, kind pod.ContainerType) v1.ContainerStatus {
	current, previous := g.newest(c.Name)
	if current == nil {
		return g.absent(c, old, kind)
	}
	s := v1.ContainerStatus{
		Name:         c.Name,
		State:        g.state(current),
		RestartCount: int32(min(current.RestartCount, math.MaxInt32)),
		Image:        current.Image,
		ImageID:      cmp.Or(current.ImageRef, current.ImageID),
		ContainerID:  containerID(current),
		VolumeMounts: g.volumeMounts(c),
		User:         current.User,
	}
	g.resources(c, current, &s, old)
	if s.State.Waiting != nil && kind == pod.Init {
		s.State.Waiting.Reason = reasonInitializing
	}
	if previous != nil {
		s.LastTerminationState = v1.ContainerState{Terminated: g.state(previous).Terminated}
	}
	if old != nil {
		s.RestartCount = countOn(old, &s)
		if previous == nil {
			s.LastTerminationState = previousTermination(old, s.ContainerID)
		}
	}
	return s
}

// countOn returns the restart count of a container whose earlier attempts the
// runtime may have lost. It never decreases, and a container other than that of
// the old status has at least the next count.
func countOn(old, s *v1.ContainerStatus) int32 {
	least := old.RestartCount
	if old.ContainerID != s.ContainerID {
		least = NextCount(old)
	}
	return max(s.RestartCount, least)
}

// NextCount returns the restart count of the container after s: one more if
// that container ran, and the same if it was only created.
func NextCount(s *v1.ContainerStatus) int32 {
	if s.State.Waiting == nil && s.ContainerID != "" {
		return oneMore(s.RestartCount)
	}
	return s.RestartCount
}

func oneMore(count int32) int32 { return min(count, math.MaxInt32-1) + 1 }

// previousTermination returns the termination state, from the old status, of the
// container before containerID.
func previousTermination(old *v1.ContainerStatus, containerID string) v1.ContainerState {
	for _, t := range []*v1.ContainerStateTerminated{old.State.Terminated, old.LastTerminationState.Terminated} {
		if t != nil && t.ContainerID != containerID {
			return v1.ContainerState{Terminated: t}
		}
	}
	return v1.ContainerState{}
}

// absent returns the status of a container that the runtime does not have: not
// created yet, or removed.
func (g *generator) absent(c *v1.Container, old *v1.ContainerStatus, kind pod.ContainerType) v1.ContainerStatus {
	if g.removing && kind != pod.Ephemeral && old != nil && old.State.Waiting == nil {
		return removed(old)
	}
	if old != nil && old.State.Terminated != nil {
		return *old
	}
	s := v1.ContainerStatus{Name: c.Name}
	if old != nil {
		s = *old
	}
	if s.ContainerID == "" {
		s.Image, s.VolumeMounts = c.Image, g.volumeMounts(c)
	}
	if w := s.State.Waiting; w != nil && w.Reason == reasonRestartingAll {
		return s
	}
	s.State = v1.ContainerState{Waiting: &v1.ContainerStateWaiting{Reason: reasonCreating}}
	if len(g.Pod.Spec.InitContainers) > 0 {
		s.State.Waiting.Reason = reasonInitializing
	}
	_, waits := g.Waiting[c.Name]
	switch {
	case kind == pod.Init && !waits && !g.removing && !pod.IsRestartableInit(c) && g.mainExists():
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
			s.RestartCount = oneMore(s.RestartCount)
		}
	}
	return s
}

// mainExists reports whether a main container was created, which means that the
// pod is initialized.
func (g *generator) mainExists() bool {
	for i := range g.Pod.Spec.Containers {
		if g.Observed.Latest(g.Pod.Spec.Containers[i].Name) != nil {
			return true
		}
	}
	return false
}

// wait sets the waiting state of a container that should be started and does not run.
func (g *generator) wait(c *v1.Container, s *v1.ContainerStatus, kind pod.ContainerType) {
	r, ok := g.Waiting[c.Name]
	if !ok || s.State.Running != nil || g.Terminating || g.Terminated || g.Pod.DeletionTimestamp != nil {
		return
	}
	if t := s.State.Terminated; t != nil {
		if t.Reason != reasonUnknown && !g.restarts(c, t, kind) {
			return
		}
		s.LastTerminationState = s.State
	}
	s.State = v1.ContainerState{Waiting: &v1.ContainerStateWaiting{Reason: r.Reason, Message: r.Message}}
}

// probe sets started and ready.
func (g *generator) probe(c *v1.Container, s, old *v1.ContainerStatus) {
	result := pod.ProbeResult{}
	if s.State.Running != nil {
		known := false
		if result, known = g.Probes[pod.ContainerID(s)]; !known {
			same := old != nil && old.ContainerID == s.ContainerID
			result.Started = c.StartupProbe == nil || same && old.Started != nil && *old.Started
			result.Ready = c.ReadinessProbe == nil || same && old.Ready
		}
	}
	s.Started = &result.Started
	s.Ready = result.Started && result.Ready
}
