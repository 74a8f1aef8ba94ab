package plan

import (
	"math"

	v1 "k8s.io/api/core/v1"

	"github.com/tinylet/tinylet/agent/container"
	"github.com/tinylet/tinylet/agent/pod"
)

// current returns the container that represents the name in the usable sandbox:
// the newest running one, else the newest one, or nil if there is none.
func (p *planner) current(name string) *container.Container {
	if p.sandbox == nil {
		return nil
	}
	var newest *container.Container
	for i := range p.Observed.Containers {
		c := &p.Observed.Containers[i]
		if c.Name != name || c.SandboxID != p.sandbox.ID {
			continue
		}
		if c.State == container.StateRunning {
			return c
		}
		if newest == nil {
			newest = c
		}
	}
	return newest
}

// lastStarted returns the newest container of that name, in any sandbox, that was
// ever started, or nil if none is known.
func (p *planner) lastStarted(name string) *container.Container {
	for i := range p.Observed.Containers {
		if c := &p.Observed.Containers[i]; c.Name == name && c.State != container.StateCreated {
			return c
		}
	}
	return nil
}

// nextCount returns the restart count of the next container of that name: one
// more than that of any container that was started, and not less than that of
// one that was only created.
func (p *planner) nextCount(name string) int {
	next := 0
	for i := range p.Observed.Containers {
		c := &p.Observed.Containers[i]
		if c.Name != name {
			continue
		}
		n := min(c.RestartCount, math.MaxInt32-1)
		if c.State != container.StateCreated {
			n++
		}
		next = max(next, n)
	}
	return next
}

// mayRun reports whether the container has to be stopped to make sure that it
// does not run.
func mayRun(c *container.Container) bool {
	return c.State == container.StateRunning || c.State == container.StateUnknown
}

// succeeded reports whether the container completed successfully. One that was
// OOM-killed did not, whatever its exit code (isInitContainerFailed in
// pkg/kubelet/kuberuntime/helpers.go).
func succeeded(c *container.Container) bool {
	return c.State == container.StateExited && c.ExitCode == 0 && c.Reason != container.ReasonOOMKilled
}

// changed reports whether the container was created from another spec, or has
// to be recreated for a resize. A container without a hash counts as unchanged.
func (p *planner) changed(c *v1.Container, cur *container.Container) bool {
	if _, resized := p.Resized[cur.ID]; resized {
		return true
	}
	return p.Hash != nil && cur.Hash != "" && p.Hash(c) != cur.Hash
}

// started reports whether a running container counts as started.
func (p *planner) started(c *v1.Container, cur *container.Container) bool {
	if r, known := p.Probes[cur.ID]; known {
		return r.Started
	}
	return c.StartupProbe == nil
}

// restartsAfter reports whether the container is restarted after last: by its rules and
// policy, or, if last has not exited, by the policy alone. A container that ran until its
// sandbox was lost counts as failed.
func restartsAfter(p *v1.Pod, c *v1.Container, last *container.Container) bool {
	if last.State == container.StateExited {
		return pod.ShouldRestart(&p.Spec, c, last.ExitCode)
	}
	return pod.RestartPolicy(&p.Spec, c) != v1.RestartPolicyNever
}

// retries reports whether an init container that did not succeed is restarted. An
// OOM-killed one may have exited with 0; then the policy alone decides.
func retries(p *v1.Pod, c *v1.Container, last *container.Container) bool {
	if last.State == container.StateExited && last.ExitCode == 0 {
		return pod.RestartPolicy(&p.Spec, c) != v1.RestartPolicyNever
	}
	return restartsAfter(p, c, last)
}

// shouldStart reports whether a main container that does not run should be started;
// last is the newest one that was started, or nil.
func shouldStart(p *v1.Pod, c *v1.Container, last *container.Container) bool {
	return last == nil || restartsAfter(p, c, last)
}
