package plan

import (
	v1 "k8s.io/api/core/v1"

	"github.com/tinylet/tinylet/agent/container"
	"github.com/tinylet/tinylet/agent/pod"
)

// inits plans the init containers in the usable sandbox: one at a time, in order.
// Regular ones are not run again once a main container exists there. initialized means
// that the main containers may start. failed means that the pod has failed.
//
// The last existing init container determines the progress of the pod, since the
// earlier ones may have been removed. Restartable init containers count as done
// once they have started. They are restarted whenever they do not run, also
// while a later init container or a main container runs.
func (p *planner) inits() (initialized, failed bool) {
	specs := p.Pod.Spec.InitContainers
	if len(specs) == 0 {
		return true, false
	}
	at := p.progress()
	for i := range specs[:min(at, len(specs))] {
		if c := &specs[i]; pod.IsRestartableInit(c) {
			p.sidecar(c)
		}
	}
	for ; at < len(specs); at++ {
		done, failed := p.init(&specs[at])
		if !done {
			return false, failed
		}
	}
	return true, false
}

// progress returns the index of the init container at which to continue, or the number
// of init containers if a main container exists in the usable sandbox.
func (p *planner) progress() int {
	for i := range p.Pod.Spec.Containers {
		if p.current(p.Pod.Spec.Containers[i].Name) != nil {
			return len(p.Pod.Spec.InitContainers)
		}
	}
	for i := len(p.Pod.Spec.InitContainers) - 1; i > 0; i-- {
		if p.current(p.Pod.Spec.InitContainers[i].Name) != nil {
			return i
		}
	}
	return 0
}

// init plans one init container. done means that the next one may start.
func (p *planner) init(c *v1.Container) (done, failed bool) {
	if pod.IsRestartableInit(c) {
		return p.sidecar(c), false
	}
	cur := p.current(c.Name)
	switch {
	case cur == nil:
		p.start(c, pod.Init, p.lastStarted(c.Name))
	case cur.State == container.StateRunning:
	case cur.State == container.StateCreated:
		p.replace(c, pod.Init, cur)
	case succeeded(cur):
		return true, false
	case !retries(p.Pod, c, cur):
		return false, true
	default:
		p.replace(c, pod.Init, cur)
	}
	return false, false
}

// sidecar plans a restartable init container and reports whether it has
// started. A failed liveness probe does not delay the next init container.
func (p *planner) sidecar(c *v1.Container) (started bool) {
	cur := p.current(c.Name)
	switch {
	case cur == nil:
		p.start(c, pod.Init, p.lastStarted(c.Name))
	case cur.State == container.StateRunning && !p.changed(c, cur):
		if message, failed := p.failure(pod.Init, c, cur); failed {
			p.kill(c, cur, message)
			p.startKilled(c, pod.Init, cur)
		}
		return p.started(c, cur)
	default:
		p.replace(c, pod.Init, cur)
	}
	return false
}

// ephemerals plans the ephemeral containers that were never started. They need only the
// sandbox, and no other container waits for them. None is started twice.
func (p *planner) ephemerals() {
	for i := range p.Pod.Spec.EphemeralContainers {
		c := pod.EphemeralAsContainer(&p.Pod.Spec.EphemeralContainers[i])
		if p.lastStarted(c.Name) != nil {
			continue
		}
		if cur := p.current(c.Name); cur != nil {
			p.replace(c, pod.Ephemeral, cur) // created, never started
			continue
		}
		p.start(c, pod.Ephemeral, nil)
	}
}
