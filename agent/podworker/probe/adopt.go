package probe

import (
	"math/rand/v2"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/tinylet/tinylet/agent/container"
	"github.com/tinylet/tinylet/agent/pod"
)

// adoptWithin is the time after the first observation within which the startup and
// readiness probes of containers that the agent found running first run, unless their
// delay is longer.
const adoptWithin = 2 * time.Second

// adopt sets the state of a container that ran before the agent started and has no saved
// state, by the container's status from the API server. Without a status, the container
// is started if its startup probe must have succeeded or failed by now, or if overtaken is
// true: a container exists that was created only after it had started. With a readiness
// probe it is not ready until that succeeds.
func (t *target) adopt(now, startedAt time.Time, remembered *v1.ContainerStatus, overtaken bool) {
	age := min(max(now.Round(0).Sub(startedAt), 0), 365*24*time.Hour)
	t.begun = now.Add(-age)
	if s := t.checks[startup]; s != nil {
		t.result.Started = overtaken || age >= s.startupDecidedAfter()
		if remembered != nil && remembered.Started != nil {
			t.result.Started = *remembered.Started
		}
		s.stopped = t.result.Started
	}
	r := t.checks[readiness]
	switch {
	case r == nil:
		t.result.Ready = t.result.Started
	case !t.result.Started:
	case remembered != nil:
		t.result.Ready = remembered.Ready
	}
	t.unconfirmed = remembered == nil
}

// applyAPIStatus sets the state of the containers for which adopt found no status, once
// their status from the API server is available: pods may come from the journal
// first. It does not change a container whose startup or readiness probe has reached a
// threshold since. The caller holds the lock.
func (m *Manager) applyAPIStatus(st *podState, now time.Time) {
	for i := range st.containers {
		t := st.containers[i].target
		if t == nil || !t.unconfirmed {
			continue
		}
		status := apiContainerStatus(st.pod, t.id)
		if status == nil {
			continue
		}
		t.unconfirmed, st.results = false, nil
		starts := !t.result.Started && status.Started != nil && *status.Started
		if starts {
			t.result.Started = true
			m.stop(t.checks[startup])
		}
		t.result.Ready = t.result.Started && (status.Ready || t.checks[readiness] == nil)
		if starts {
			m.startWaiting(t, now)
		}
		m.markChanged()
	}
}

// firstAdoptedRun returns the time of the first run of a check of an adopted container: a
// random time within adoptWithin, or within a period for liveness and shorter periods. It
// is not before the end of the delay.
func (c *check) firstAdoptedRun(now time.Time) time.Time {
	within := c.period
	if c.kind != liveness && c.period > adoptWithin {
		within, c.spread = adoptWithin, true
	}
	due := now.Add(randomFraction(within))
	if earliest := c.target.begun.Add(c.delay); due.Before(earliest) {
		return earliest
	}
	return due
}

// randomFraction returns a random duration below d.
func randomFraction(d time.Duration) time.Duration {
	return time.Duration(rand.Float64() * float64(d)) //nolint:gosec // not security relevant
}

// hasLaterContainer reports whether a container of the sandbox was created after c was
// started. For a restartable init container this means that it has started.
func hasLaterContainer(o *container.Observed, c *container.Container) bool {
	return slices.ContainsFunc(o.Containers, func(other container.Container) bool {
		return other.SandboxID == c.SandboxID && other.Name != c.Name && other.CreatedAt.After(c.StartedAt)
	})
}

// apiContainerStatus returns the status that the API server has of the container with
// the ID, or nil. The status in a static pod's manifest is ignored.
func apiContainerStatus(p *v1.Pod, id string) *v1.ContainerStatus {
	if pod.IsStatic(p) {
		return nil
	}
	for s := range pod.ContainerStatuses(&p.Status) {
		if pod.ContainerID(s) == id {
			return s
		}
	}
	return nil
}
