package plan

import "github.com/tinylet/tinylet/agent/pod"

// ephemerals plans the ephemeral containers that were never started. They need
// only the sandbox, and nothing waits for them. None is ever started twice,
// killed for its own state, or counted.
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
