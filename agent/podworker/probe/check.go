package probe

import (
	"context"
	"time"

	v1 "k8s.io/api/core/v1"
)

// check is one probe of one container.
type check struct {
	timing
	kind kind
	spec *v1.Probe
	of   *target
	// tally outlives the container: the probes of later instances count in it
	// too.
	tally *tally

	due   time.Time
	index int // in the queue; negative if not queued
	// cancel cancels the run in flight; nil if there is none.
	cancel context.CancelFunc
	// off means that the check does not run any more for this container.
	off bool
	// spread gives the second run a random phase, because the first runs of
	// many probes were close together.
	spread bool

	last bool // the last result
	run  int  // its number of occurrences in a row
}

// target is one running container with probes.
type target struct {
	pod    *podState
	c      *v1.Container
	init   bool
	id     string
	begun  time.Time // start, on the monotonic clock
	checks [kinds]*check
	result Result
	// supposed means that the agent found the container running, and that
	// neither a saved state nor a status from the API server was available.
	supposed bool
}

func newTarget(st *podState, pc *probedContainer, id string, begun time.Time) *target {
	t := &target{pod: st, c: pc.c, init: pc.init, id: id, begun: begun}
	for k := range kinds {
		if spec := k.specOf(pc.c); spec != nil {
			if pc.tallies[k] == nil {
				pc.tallies[k] = new(tally)
			}
			t.checks[k] = &check{timing: timingOf(spec), kind: k, spec: spec, of: t, tally: pc.tallies[k], index: -1}
		}
	}
	t.result.Started = t.checks[startup] == nil
	t.result.Ready = t.result.Started && t.checks[readiness] == nil
	return t
}

// learn counts a result, and reports whether it changed the container's Result.
func (c *check) learn(ok bool) (changed bool) {
	if c.run == 0 || c.last != ok {
		c.last, c.run = ok, 0
	}
	c.run++
	if c.run < c.threshold(ok) {
		return false
	}
	c.of.supposed = c.of.supposed && c.kind == liveness
	return c.decide(ok)
}

// threshold returns the number of equal results in a row that are needed before
// the result takes effect.
func (c *check) threshold(ok bool) int {
	if ok {
		return c.successes
	}
	return c.failures
}

// decide applies a result that reached its threshold, and reports whether it
// changed the container's Result.
func (c *check) decide(ok bool) (changed bool) {
	r := &c.of.result
	switch c.kind {
	case startup:
		c.off = true
		if !ok {
			r.Failed = c.failure()
			return true
		}
		r.Started = true
		if c.of.checks[readiness] == nil {
			r.Ready = true
		}
		return true
	case liveness:
		if ok || r.Failed != nil {
			return false
		}
		c.off = true
		r.Failed = c.failure()
		return true
	case readiness:
		changed = r.Ready != ok
		r.Ready = ok
		return changed
	case kinds:
	}
	return false
}

func (c *check) failure() *Failure {
	message := "Container " + c.of.c.Name
	if c.of.init {
		message = "Init container " + c.of.c.Name
	}
	if c.kind == startup {
		message += " failed startup probe"
	} else {
		message += " failed liveness probe"
	}
	return &Failure{Kind: c.kind.String(), Grace: c.spec.TerminationGracePeriodSeconds, Message: message}
}
