package podstatus

import (
	"cmp"
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/tinylet/tinylet/agent/container"
	"github.com/tinylet/tinylet/agent/pod"
)

// phase sets the phase with its reason and message. A terminal phase is final
// (generateAPIPodStatus in pkg/kubelet/kubelet_pods.go). A pod that ran does
// not become pending again, even if all its containers were lost in a power cut, unless
// it has a rule that restarts all containers.
func (g *generator) phase(s *v1.PodStatus) {
	s.Phase = g.computedPhase(s)
	if r := g.Failed; r != nil {
		s.Phase, s.Reason, s.Message = v1.PodFailed, r.Reason, r.Message
	}
	switch {
	case pod.IsTerminal(g.old.Phase):
		s.Phase = g.old.Phase
	case pod.IsTerminal(g.api.Phase):
		s.Phase = g.api.Phase
	case g.Terminated && !pod.IsStatic(g.Pod) && !pod.IsTerminal(s.Phase):
		s.Phase = v1.PodFailed
	case s.Phase == v1.PodPending && (g.old.Phase == v1.PodRunning || g.api.Phase == v1.PodRunning) && !pod.HasRestartAllRule(&g.Pod.Spec):
		s.Phase = v1.PodRunning
	}
	for _, earlier := range []*v1.PodStatus{g.api, g.old} {
		if s.Phase == earlier.Phase {
			s.Reason = cmp.Or(earlier.Reason, s.Reason)
			s.Message = cmp.Or(earlier.Message, s.Message)
		}
	}
	g.suppressed = g.mustSuppress(s)
}

// suppressPhase suppresses a terminal phase while a container still runs, since readers
// treat the resources of a terminated pod as free (mergePodStatus in
// pkg/kubelet/status/status_manager.go). The conditions already show the end.
func (g *generator) suppressPhase(s *v1.PodStatus) {
	if g.suppressed {
		s.Phase, s.Reason, s.Message = cmp.Or(g.old.Phase, v1.PodPending), g.old.Reason, g.old.Message
	}
}

// mustSuppress reports whether the phase has to be suppressed.
func (g *generator) mustSuppress(s *v1.PodStatus) bool {
	if !pod.IsTerminal(s.Phase) || pod.IsTerminal(g.old.Phase) || pod.IsTerminal(g.api.Phase) || g.Terminated {
		return false
	}
	return slices.ContainsFunc(g.Observed.Containers, func(c container.Container) bool { return c.State == container.StateRunning })
}

// restarts reports whether a container with this termination state is restarted. A regular
// init container that exited with 0 and an ephemeral container are never restarted.
func (g *generator) restarts(c *v1.Container, end *v1.ContainerStateTerminated, kind pod.ContainerType) bool {
	switch {
	case kind == pod.Ephemeral, kind == pod.Init && end.ExitCode == 0 && !pod.IsRestartableInit(c):
		return false
	case g.restarting, end.Reason == reasonRestartingAll:
		return true
	default:
		return pod.ShouldRestart(&g.Pod.Spec, c, end.ExitCode)
	}
}

// ended returns the termination state of a container that does not run: the
// current one, or the one before its wait. It returns nil if the container
// never ended.
func ended(s *v1.ContainerStatus) *v1.ContainerStateTerminated {
	if s.State.Terminated != nil {
		return s.State.Terminated
	}
	if s.State.Waiting != nil {
		return s.LastTerminationState.Terminated
	}
	return nil
}

// counts are the numbers of a pod's containers by state.
type counts struct {
	waiting, running, stopped int // main containers and, except in stopped, sidecars
	over, succeeded           int // of stopped: not restarted, exited with 0
}

// computedPhase is getPhase of pkg/kubelet/kubelet_pods.go.
func (g *generator) computedPhase(s *v1.PodStatus) v1.PodPhase {
	pending, failed := g.initPhase(s)
	if failed {
		return v1.PodFailed
	}
	n := g.count(s)
	switch {
	case pending || n.waiting > 0:
		return v1.PodPending
	case n.running > 0:
		return v1.PodRunning
	case n.stopped == 0:
		return v1.PodPending
	case n.stopped != n.over && (!g.Terminated || pod.IsStatic(g.Pod)):
		return v1.PodRunning
	case n.stopped == n.succeeded:
		return v1.PodSucceeded
	default:
		return v1.PodFailed
	}
}

// initPhase reports whether initialization is not complete, and whether it failed.
func (g *generator) initPhase(s *v1.PodStatus) (pending, failed bool) {
	for i := range g.Pod.Spec.InitContainers {
		c, cs := &g.Pod.Spec.InitContainers[i], &s.InitContainerStatuses[i]
		if pod.IsRestartableInit(c) {
			starting := cs.State.Running != nil && !*cs.Started
			pending = pending || starting && !g.mainActive()
			continue
		}
		end := ended(cs)
		pending = pending || end == nil
		failed = failed || end != nil && end.ExitCode != 0 && !g.restarts(c, end, pod.Init)
	}
	return pending, failed
}

func (g *generator) count(s *v1.PodStatus) (n counts) {
	for i := range g.Pod.Spec.InitContainers {
		if !pod.IsRestartableInit(&g.Pod.Spec.InitContainers[i]) {
			continue
		}
		cs := &s.InitContainerStatuses[i]
		switch {
		case cs.State.Running != nil:
			n.running++
		case ended(cs) == nil:
			n.waiting++
		}
	}
	for i := range g.Pod.Spec.Containers {
		c := &g.Pod.Spec.Containers[i]
		cs := pod.FindContainerStatus(s, c.Name)
		end := ended(cs)
		switch {
		case cs.State.Running != nil:
			n.running++
		case end == nil:
			n.waiting++
		default:
			n.stopped++
			if !g.restarts(c, end, pod.Main) {
				n.over++
			}
			if end.ExitCode == 0 {
				n.succeeded++
			}
		}
	}
	return n
}

// mainActive reports whether the newest sandbox is ready and has a main container.
func (g *generator) mainActive() bool {
	sandbox := g.Observed.Sandbox()
	if sandbox == nil || !sandbox.Ready {
		return false
	}
	return slices.ContainsFunc(g.Observed.Containers, func(c container.Container) bool {
		_, kind := pod.FindContainer(&g.Pod.Spec, c.Name)
		return c.SandboxID == sandbox.ID && kind == pod.Main
	})
}
