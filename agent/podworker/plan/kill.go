package plan

import (
	v1 "k8s.io/api/core/v1"

	"github.com/tinylet/tinylet/agent/container"
	"github.com/tinylet/tinylet/agent/pod"
)

// kill plans the kill of cur. c is its spec, or nil if the pod has none.
func (p *planner) kill(c *v1.Container, cur *container.Container, message string) {
	var grace *int64
	if r := p.Probes[cur.ID]; r.Failed != "" {
		grace = r.Grace
	}
	p.out.Kill = append(p.out.Kill, Kill{
		ID: cur.ID, Name: cur.Name, Message: message,
		Grace: pod.ProbeGracePeriod(p.Pod, grace), PreStop: preStopOf(c, cur), Container: c,
	})
}

// killDuplicates kills running containers other than the current ones: a second one of
// the same name, or one in an older sandbox. In the current sandbox it leaves
// ephemeral containers alone, and names that the spec does not have.
func (p *planner) killDuplicates() {
	for i := range p.Observed.Containers {
		cur := &p.Observed.Containers[i]
		if !mayRun(cur) {
			continue
		}
		inOlder, second := cur.SandboxID != p.sandbox.ID, p.current(cur.Name) != cur
		if !inOlder && !second {
			continue
		}
		c, kind := pod.FindContainer(&p.Pod.Spec, cur.Name)
		switch {
		case inOlder:
			p.kill(c, cur, "Container "+cur.Name+" runs in an older pod sandbox")
		case c != nil && kind != pod.Ephemeral:
			p.kill(c, cur, "Container "+cur.Name+" runs more than once")
		}
	}
}
