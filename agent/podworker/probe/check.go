package probe

import (
	"context"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/tinylet/tinylet/agent/pod"
)

// check is one probe of one container.
type check struct {
	timing
	kind   kind
	spec   *v1.Probe
	target *target
	// tally outlives the container: the probes of later instances count in it
	// too.
	tally *tally

	due   time.Time
	index int // in the queue; negative if not queued
	// cancel cancels the run in flight; nil if there is none.
	cancel context.CancelFunc
	// stopped means that the check no longer runs for this container.
	stopped bool
	// spread gives the second run a random phase, because the first runs of
	// many probes were close together.
	spread bool

	lastOK bool // the last result
	streak int  // its number of occurrences in a row
}

// target is one running container with probes.
type target struct {
	pod    *podState
	c      *v1.Container
	id     string
	begun  time.Time // the start, or its first observation, on the monotonic clock
	checks [kinds]*check
	result pod.ProbeResult
	// unconfirmed means that the agent found the container running, and that
	// neither a saved state nor a status from the API server was available.
	unconfirmed bool
}

func newTarget(st *podState, pc *probedContainer, id string, begun time.Time) *target {
	t := &target{pod: st, c: pc.c, id: id, begun: begun}
	for k := range kinds {
		if spec := k.specOf(pc.c); spec != nil {
			if pc.tallies[k] == nil {
				pc.tallies[k] = new(tally)
			}
			t.checks[k] = &check{timing: timingOf(spec), kind: k, spec: spec, target: t, tally: pc.tallies[k], index: -1}
		}
	}
	t.result.Started = t.checks[startup] == nil
	t.result.Ready = t.result.Started && t.checks[readiness] == nil
	return t
}

// recordResult records a result, and reports whether the container's ProbeResult changed.
func (c *check) recordResult(ok bool) (changed bool) {
	if c.streak == 0 || c.lastOK != ok {
		c.lastOK, c.streak = ok, 0
	}
	c.streak++
	if c.streak < c.threshold(ok) {
		return false
	}
	c.target.unconfirmed = c.target.unconfirmed && c.kind == liveness
	return c.applyResult(ok)
}

// threshold returns the number of equal results in a row that are needed before
// the result takes effect.
func (c *check) threshold(ok bool) int {
	if ok {
		return c.successes
	}
	return c.failures
}

// applyResult applies a result that reached its threshold, and reports whether the
// container's ProbeResult changed.
func (c *check) applyResult(ok bool) (changed bool) {
	r := &c.target.result
	switch c.kind {
	case startup:
		c.stopped = true
		if ok {
			r.Started = true
			r.Ready = r.Ready || c.target.checks[readiness] == nil
		} else {
			c.fail()
		}
		return true
	case liveness:
		if ok || r.Failed != "" {
			return false
		}
		c.stopped = true
		c.fail()
		return true
	case readiness:
		changed = r.Ready != ok
		r.Ready = ok
		return changed
	case kinds:
	}
	return false
}

// fail records that the container has to be restarted.
func (c *check) fail() {
	c.target.result.Failed, c.target.result.Grace = c.kind.String(), c.spec.TerminationGracePeriodSeconds
}
