package probe

import (
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/tinylet/tinylet/agent/container"
	"github.com/tinylet/tinylet/agent/pod"
	"github.com/tinylet/tinylet/agent/wait"
)

// podState is the state of one pod with probes. The manager's lock guards it.
type podState struct {
	pod         *v1.Pod
	ip          string
	hostNetwork bool
	// seen means that the pod was observed before, so that another running
	// container has started since.
	seen bool
	// terminating means that liveness and startup probes no longer run.
	terminating bool
	containers  []probedContainer
	// results is the map that snapshot returned last; nil if it is stale.
	results map[string]pod.ProbeResult
	// changes receives after each change of results; nil until Changes is called.
	changes wait.Wakeup
}

// probedContainer is a container that has probes.
type probedContainer struct {
	c    *v1.Container
	init bool
	// target is the running instance; nil if there is none.
	target *target
	// tallies are nil for probes that the container does not have, and before its
	// first instance was observed.
	tallies [kinds]*tally
}

// hasProbe reports whether a container has probes that run. Only those of main containers
// and of restartable init containers run.
func hasProbe(c *v1.Container, kind pod.ContainerType) bool {
	runs := kind == pod.Main || kind == pod.Init && pod.IsRestartableInit(c)
	return runs && (c.StartupProbe != nil || c.LivenessProbe != nil || c.ReadinessProbe != nil)
}

// podHasProbes reports whether a container of the pod has probes.
func podHasProbes(p *v1.Pod) bool {
	for c, kind := range pod.Containers(&p.Spec) {
		if hasProbe(c, kind) {
			return true
		}
	}
	return false
}

// update stores a newer spec and the pod's address.
func (st *podState) update(p *v1.Pod, o *container.Observed) {
	if st.pod != p {
		st.pod = p
		for c, kind := range pod.Containers(&p.Spec) {
			if hasProbe(c, kind) {
				st.add(c, kind == pod.Init)
			}
		}
	}
	st.hostNetwork = p.Spec.HostNetwork
	if s := o.Sandbox(); s != nil && len(s.IPs) > 0 {
		st.ip = s.IPs[0]
	}
}

// add adds a container, or replaces its spec if it is known.
func (st *podState) add(c *v1.Container, init bool) {
	for i := range st.containers {
		pc := &st.containers[i]
		if pc.c.Name != c.Name {
			continue
		}
		pc.c = c
		if pc.target != nil {
			pc.target.setSpec(c)
		}
		return
	}
	st.containers = append(st.containers, probedContainer{c: c, init: init})
}

// setSpec replaces the spec, so that an older version of the pod is not retained. The
// probes of a pod cannot change, so the timing stays.
func (t *target) setSpec(c *v1.Container) {
	t.c = c
	for k := range kinds {
		if spec := k.specOf(c); spec != nil && t.checks[k] != nil {
			t.checks[k].spec = spec
		}
	}
}

// snapshot returns the results of the running containers by container ID. It builds the map
// only if results is stale.
func (st *podState) snapshot() map[string]pod.ProbeResult {
	if st.results == nil {
		for i := range st.containers {
			if t := st.containers[i].target; t != nil {
				if st.results == nil {
					st.results = make(map[string]pod.ProbeResult, len(st.containers))
				}
				st.results[t.id] = t.result
			}
		}
	}
	return st.results
}

// syncContainer starts or stops the probes of one container according to the
// observation.
func (m *Manager) syncContainer(st *podState, pc *probedContainer, o *container.Observed, now time.Time) {
	running := findContainer(o, func(c *container.Container) bool { return c.Name == pc.c.Name && c.State == container.StateRunning })
	if t := pc.target; t != nil {
		unknown := func(c *container.Container) bool { return c.ID == t.id && c.State == container.StateUnknown }
		if running == nil && findContainer(o, unknown) != nil || running != nil && running.ID == t.id {
			return
		}
		m.stopTarget(t)
		m.markChanged()
		pc.target, st.results = nil, nil
	}
	if running == nil {
		return
	}
	t := newTarget(st, pc, running.ID, now)
	pc.target, st.results = t, nil
	m.markChanged()
	saved, adopted := m.takeRestored(st.pod.UID, running.ID), !st.seen
	switch {
	case saved != nil:
		t.resume(saved, now, m.Uptime())
	case adopted:
		t.adopt(now, running.StartedAt, apiContainerStatus(st.pod, running.ID), pc.init && hasLaterContainer(o, running))
	}
	for _, c := range t.checks {
		if c == nil {
			continue
		}
		c.stopped = c.stopped || st.terminating && c.kind != readiness
		switch {
		case saved != nil && !c.due.IsZero(): // resume has set it
		case saved != nil, adopted:
			c.due = c.firstAdoptedRun(now)
		default:
			c.due = t.begun.Add(c.firstRunAfter(c.kind))
		}
		if c.runs() {
			m.enqueue(c)
		}
	}
}

// runs reports whether the check has to run in the current state.
func (c *check) runs() bool {
	return !c.stopped && (c.kind == startup || c.target.result.Started)
}

// findContainer returns the first container that matches, or nil. o may be nil.
func findContainer(o *container.Observed, matches func(*container.Container) bool) *container.Container {
	if o == nil {
		return nil
	}
	for i := range o.Containers {
		if c := &o.Containers[i]; matches(c) {
			return c
		}
	}
	return nil
}

// stopRestartProbes stops the liveness and startup probes of a pod and drops their failures,
// so that none restarts a container.
func (m *Manager) stopRestartProbes(st *podState) {
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
		t.result.Failed, t.result.Grace, st.results = "", nil, nil
		m.markChanged()
	}
}

// stopTarget stops all probes of a container.
func (m *Manager) stopTarget(t *target) {
	if t == nil {
		return
	}
	for _, c := range t.checks {
		m.stop(c)
	}
}

// stop stops one check, if c is not nil. It cancels a run in flight, whose result is
// dropped.
func (m *Manager) stop(c *check) {
	if c == nil {
		return
	}
	c.stopped = true
	m.queue.remove(c)
	if c.cancel != nil {
		c.cancel()
	}
}
