package plan

import (
	"slices"

	"github.com/tinylet/tinylet/agent/container"
	"github.com/tinylet/tinylet/agent/pod"
)

// prune plans the removal of what is no longer needed: exited containers
// except for the current one and one more of each name, as the kubelet keeps
// them (--maximum-dead-containers-per-container=1); created containers that
// will not be started; and older sandboxes without remaining containers. It does not
// remove the newest sandbox, which has the attempt number. Older ready sandboxes with
// remaining containers are stopped.
func (p *planner) prune() {
	for i := range p.Observed.Containers {
		if c := &p.Observed.Containers[i]; p.prunable(i) {
			p.out.Remove = append(p.out.Remove, c.ID)
		}
	}
	for i := 1; i < len(p.Observed.Sandboxes); i++ {
		s := &p.Observed.Sandboxes[i]
		switch {
		case p.willBeEmpty(s.ID):
			p.out.RemoveSandboxes = append(p.out.RemoveSandboxes, s.ID)
		case s.Ready && !p.out.KillPod:
			p.out.StopSandboxes = append(p.out.StopSandboxes, s.ID)
		}
	}
}

func (p *planner) prunable(index int) bool {
	c := &p.Observed.Containers[index]
	switch c.State {
	case container.StateExited:
		return c != p.statusContainer(c.Name) && p.deadBefore(index) > 0
	case container.StateCreated:
		spec, _ := pod.FindContainer(&p.Pod.Spec, c.Name)
		return spec != nil && !slices.ContainsFunc(p.out.Start, func(s Start) bool { return s.Existing == c.ID })
	case container.StateRunning, container.StateUnknown:
	}
	return false
}

// statusContainer returns the container that determines the status of the name: the one
// in the usable sandbox, else the newest started one, or nil.
func (p *planner) statusContainer(name string) *container.Container {
	if c := p.current(name); c != nil {
		return c
	}
	return p.lastStarted(name)
}

// deadBefore counts the newer exited containers of the same name, except for the one that
// statusContainer returns.
func (p *planner) deadBefore(index int) (n int) {
	name := p.Observed.Containers[index].Name
	standing := p.statusContainer(name)
	for i := range p.Observed.Containers[:index] {
		c := &p.Observed.Containers[i]
		if c.Name == name && c.State == container.StateExited && c != standing {
			n++
		}
	}
	return n
}

// willBeEmpty reports whether all containers of the sandbox will be removed.
func (p *planner) willBeEmpty(sandboxID string) bool {
	for i := range p.Observed.Containers {
		c := &p.Observed.Containers[i]
		if c.SandboxID == sandboxID && !slices.Contains(p.out.Remove, c.ID) {
			return false
		}
	}
	return true
}
