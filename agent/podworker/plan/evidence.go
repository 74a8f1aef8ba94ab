package plan

import (
	"math"

	v1 "k8s.io/api/core/v1"

	"github.com/tinylet/tinylet/agent/container"
	"github.com/tinylet/tinylet/agent/pod"
)

// current is the container that stands for the name in the usable sandbox:
// the newest that runs, else the newest at all; nil if there is none.
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

// evidence is the newest container of that name, in any sandbox, that was
// ever started; nil if none is known.
func (p *planner) evidence(name string) *container.Container {
	for i := range p.Observed.Containers {
		if c := &p.Observed.Containers[i]; c.Name == name && c.State != container.StateCreated {
			return c
		}
	}
	return nil
}

// nextCount is the restart count of the next container of that name: one
// more than any that was started, and not less than one that was only created.
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

// mayRun says whether the container has to be stopped to be sure that it is
// not running.
func mayRun(c *container.Container) bool {
	return c.State == container.StateRunning || c.State == container.StateUnknown
}

// succeeded says whether the container came to a good end. One that the
// kernel killed for its memory did not, whatever its exit code
// (isInitContainerFailed in pkg/kubelet/kuberuntime/helpers.go).
func succeeded(c *container.Container) bool {
	return c.State == container.StateExited && c.ExitCode == 0 && c.Reason != "OOMKilled"
}

// changed says whether the container was created from another spec, or has to
// be for a resize. An absent hash tells nothing.
func (p *planner) changed(c *v1.Container, cur *container.Container) bool {
	if _, resized := p.Resized[cur.ID]; resized {
		return true
	}
	return p.Hash != nil && cur.Hash != "" && p.Hash(c) != cur.Hash
}

// started says whether a running container counts as started.
func (p *planner) started(c *v1.Container, cur *container.Container) bool {
	if r, known := p.Probes[cur.ID]; known {
		return r.Started
	}
	return c.StartupProbe == nil
}

// comesBack says whether the end of last is followed by another run of the
// container: by its rules and policy, or by the policy alone where nobody saw
// how it ended. What ran until its sandbox went counts as failed.
func comesBack(p *v1.Pod, c *v1.Container, last *container.Container) bool {
	if last.State == container.StateExited {
		return pod.Restarts(&p.Spec, c, last.ExitCode)
	}
	return pod.RestartPolicy(&p.Spec, c) != v1.RestartPolicyNever
}

// retries says whether an init container that did not come to a good end is
// run again. The kernel may have killed one for its memory that yet ended
// with 0.
func retries(p *v1.Pod, c *v1.Container, last *container.Container) bool {
	if last.State == container.StateExited && last.ExitCode == 0 {
		return pod.RestartPolicy(&p.Spec, c) != v1.RestartPolicyNever
	}
	return comesBack(p, c, last)
}

// wanted says whether a main container that does not run should be started,
// last being the newest that was (nil: none).
func wanted(p *v1.Pod, c *v1.Container, last *container.Container) bool {
	return last == nil || comesBack(p, c, last)
}
