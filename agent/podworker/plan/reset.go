package plan

import (
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/tinylet/tinylet/agent/container"
	"github.com/tinylet/tinylet/agent/pod"
)

// needsReset reports whether a container exited in a way that restarts all
// containers of the pod. A sidecar that was stopped after the last main
// container does not restart the pod.
func (p *planner) needsReset() bool {
	for i := range p.Pod.Spec.Containers {
		if p.resetTrigger(&p.Pod.Spec.Containers[i]) != nil {
			return true
		}
	}
	for i := range p.Pod.Spec.InitContainers {
		if s := p.resetTrigger(&p.Pod.Spec.InitContainers[i]); s != nil && !p.overBefore(s.FinishedAt) {
			return true
		}
	}
	return false
}

// overBefore reports whether all main containers had exited by t and are not restarted.
// Containers that were killed for a restart of all exit after the one that triggered it.
func (p *planner) overBefore(t time.Time) bool {
	for i := range p.Pod.Spec.Containers {
		c := &p.Pod.Spec.Containers[i]
		s := p.statusContainer(c.Name)
		if s == nil || s.State != container.StateExited || s.FinishedAt.After(t) || restartsAfter(p.Pod, c, s) {
			return false
		}
	}
	return true
}

// resetTrigger returns the container of this name that triggers the restart of all
// containers, or nil if it does not trigger one.
func (p *planner) resetTrigger(c *v1.Container) *container.Container {
	if len(c.RestartPolicyRules) == 0 {
		return nil
	}
	if s := p.statusContainer(c.Name); s != nil && s.State == container.StateExited && pod.RestartsAllContainers(c, s.ExitCode) {
		return s
	}
	return nil
}

// reset plans the restart of all containers (RestartAllContainers in
// pkg/kubelet/kuberuntime). First the running ones are stopped, with a grace period of 0
// (see Kill) and without a hook. Then all init and main containers are removed, those
// that triggered the restart last. If the agent dies before that, it finds one of those
// and continues. Without any, the pod starts from the beginning.
func (p *planner) reset() {
	if p.resetWaits() {
		return
	}
	var sources []string
	for i := range p.Observed.Containers {
		cur := &p.Observed.Containers[i]
		c, kind := pod.FindContainer(&p.Pod.Spec, cur.Name)
		switch {
		case c == nil || kind == pod.Ephemeral:
		case mayRun(cur):
			p.out.Kill = append(p.out.Kill, Kill{
				ID: cur.ID, Name: cur.Name, Container: c,
				Message: "Container " + cur.Name + " is restarted with all containers of the pod",
			})
		case p.resetTrigger(c) == cur:
			sources = append(sources, cur.ID)
		default:
			p.out.Remove = append(p.out.Remove, cur.ID)
		}
	}
	if len(p.out.Kill) > 0 {
		p.out.Remove = nil
		return
	}
	p.out.Remove, p.out.Reset = append(p.out.Remove, sources...), true
}

// resetWaits reports whether all containers that trigger the restart were started less
// than initialBackoff ago. If so, it plans the wait.
func (p *planner) resetWaits() bool {
	wait := min(initialBackoff, p.max)
	var until time.Time
	var waiting *v1.Container
	for c, kind := range pod.Containers(&p.Pod.Spec) {
		s := p.resetTrigger(c)
		if kind == pod.Ephemeral || s == nil {
			continue
		}
		due := s.StartedAt.Add(wait)
		if s.StartedAt.After(p.Now) || !due.After(p.Now) {
			return false
		}
		if waiting == nil || due.Before(until) {
			waiting, until = c, due
		}
	}
	p.wait(waiting, wait, until)
	return true
}
