package probe

import (
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/tinylet/tinylet/agent/container"
	"github.com/tinylet/tinylet/agent/pod"
)

// podState is one pod with probes. The manager's lock guards it.
type podState struct {
	pod  *v1.Pod
	ip   string
	host bool // on the host's network
	// seen says that the pod was looked at before: what appears now is new.
	seen bool
	// terminating: no liveness and no startup any more.
	terminating bool
	containers  []probedContainer
	// results is what was handed out last; nil if that is stale.
	results map[string]Result
}

// probedContainer is a container that has probes.
type probedContainer struct {
	c    *v1.Container
	init bool
	// target is its running instance, nil if there is none.
	target *target
	// tallies are nil for probes that it does not have or that never ran.
	tallies [kinds]*tally
}

func hasProbe(c *v1.Container) bool {
	return c.StartupProbe != nil || c.LivenessProbe != nil || c.ReadinessProbe != nil
}

// probed says whether any container of the pod has probes.
func probed(p *v1.Pod) bool {
	for i := range p.Spec.Containers {
		if hasProbe(&p.Spec.Containers[i]) {
			return true
		}
	}
	for i := range p.Spec.InitContainers {
		if c := &p.Spec.InitContainers[i]; pod.IsRestartableInit(c) && hasProbe(c) {
			return true
		}
	}
	return false
}

// update takes in a newer spec and where the pod can be reached.
func (st *podState) update(p *v1.Pod, o *container.Observed) {
	if st.pod != p {
		st.pod = p
		for i := range p.Spec.InitContainers {
			if c := &p.Spec.InitContainers[i]; pod.IsRestartableInit(c) {
				st.add(c, true)
			}
		}
		for i := range p.Spec.Containers {
			st.add(&p.Spec.Containers[i], false)
		}
	}
	st.host = p.Spec.HostNetwork
	if s := o.Sandbox(); s != nil && len(s.IPs) > 0 {
		st.ip = s.IPs[0]
	}
}

// add adds a container, or renews what is held of it.
func (st *podState) add(c *v1.Container, init bool) {
	if !hasProbe(c) {
		return
	}
	for i := range st.containers {
		pc := &st.containers[i]
		if pc.c.Name != c.Name {
			continue
		}
		pc.c = c
		if pc.target != nil {
			pc.target.renew(c)
		}
		return
	}
	st.containers = append(st.containers, probedContainer{c: c, init: init})
}

// renew lets go of an older spec. Probes cannot be changed in a pod, but the
// object around them is another one after each update.
func (t *target) renew(c *v1.Container) {
	t.c = c
	for k := range kinds {
		if spec := k.specOf(c); spec != nil && t.checks[k] != nil {
			t.checks[k].spec = spec
		}
	}
}

// snapshot are the results by container ID.
func (st *podState) snapshot() map[string]Result {
	if st.results == nil {
		for i := range st.containers {
			if t := st.containers[i].target; t != nil {
				if st.results == nil {
					st.results = make(map[string]Result, len(st.containers))
				}
				st.results[t.id] = t.result
			}
		}
	}
	return st.results
}

// follow begins or ends the probes of one container by what was observed.
func (m *Manager) follow(st *podState, pc *probedContainer, o *container.Observed, now time.Time) {
	running := runningOf(o, pc.c.Name)
	if t := pc.target; t != nil {
		if running == nil && lost(o, t.id) || running != nil && running.ID == t.id {
			return
		}
		m.end(t)
		m.touch()
		pc.target, st.results = nil, nil
	}
	if running == nil {
		return
	}
	t := newTarget(st, pc, running.ID, now)
	pc.target, st.results = t, nil
	m.touch()
	saved, adopted := m.take(st.pod.UID, running.ID), !st.seen
	switch {
	case saved != nil:
		t.resume(saved, now, m.Uptime())
	case adopted:
		t.adopt(now, running.StartedAt, remembered(st.pod, running.ID), pc.init && overtaken(o, running))
	}
	for _, c := range t.checks {
		if c == nil {
			continue
		}
		c.off = c.off || st.terminating && c.kind != readiness
		switch {
		case saved != nil && !c.due.IsZero(): // as before
		case saved != nil, adopted:
			c.due = c.phase(now)
		default:
			c.due = t.begun.Add(c.first(c.kind))
		}
		if c.runs() {
			m.push(c)
		}
	}
}

// runs says whether the check is to be run as things stand.
func (c *check) runs() bool {
	return !c.off && (c.kind == startup || c.of.result.Started)
}

// runningOf is the running container of that name, or nil.
func runningOf(o *container.Observed, name string) *container.Container {
	if o == nil {
		return nil
	}
	for i := range o.Containers {
		if c := &o.Containers[i]; c.Name == name && c.State == container.StateRunning {
			return c
		}
	}
	return nil
}

// lost says whether the runtime still has the container and cannot tell
// whether it runs.
func lost(o *container.Observed, id string) bool {
	if o == nil {
		return false
	}
	for i := range o.Containers {
		if c := &o.Containers[i]; c.ID == id {
			return c.State == container.StateUnknown
		}
	}
	return false
}

// quiet ends what could restart a container.
func (m *Manager) quiet(st *podState) {
	if st.terminating {
		return
	}
	st.terminating = true
	for i := range st.containers {
		t := st.containers[i].target
		if t == nil {
			continue
		}
		m.stop(t.checks[startup])
		m.stop(t.checks[liveness])
		t.result.Failed, st.results = nil, nil
		m.touch()
	}
}

// end ends all probes of a container.
func (m *Manager) end(t *target) {
	if t == nil {
		return
	}
	for _, c := range t.checks {
		m.stop(c)
	}
}

// stop ends one check. A flight is cancelled, and its result is dropped.
func (m *Manager) stop(c *check) {
	if c == nil {
		return
	}
	c.off = true
	m.queue.remove(c)
	if c.cancel != nil {
		c.cancel()
	}
}
