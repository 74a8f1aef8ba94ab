package plan

import "github.com/tinylet/tinylet/agent/pod"

// ephemerals plans the ephemeral containers that were never started. They
// need the sandbox and nothing else, and nothing waits for them; none is ever
// started twice, killed for itself or counted.
func (p *planner) ephemerals() {
	for i := range p.Pod.Spec.EphemeralContainers {
		c := pod.EphemeralOf(&p.Pod.Spec.EphemeralContainers[i])
		if p.evidence(c.Name) != nil {
			continue
		}
		if cur := p.current(c.Name); cur != nil {
			p.replace(c, pod.Ephemeral, cur) // it was only created
			continue
		}
		p.start(c, pod.Ephemeral, nil)
	}
}
