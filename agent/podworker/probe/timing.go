package probe

import (
	"time"

	v1 "k8s.io/api/core/v1"
)

// kind is which of a container's three probes.
type kind uint8

const (
	startup kind = iota
	liveness
	readiness
	kinds
)

func (k kind) String() string {
	switch k {
	case startup:
		return "Startup"
	case liveness:
		return "Liveness"
	case readiness:
		return "Readiness"
	case kinds:
	}
	return "UNKNOWN"
}

// specOf is the container's probe of that kind, or nil.
func (k kind) specOf(c *v1.Container) *v1.Probe {
	switch k {
	case startup:
		return c.StartupProbe
	case liveness:
		return c.LivenessProbe
	case readiness:
		return c.ReadinessProbe
	case kinds:
	}
	return nil
}

// timing is when a probe runs and what its results count.
type timing struct {
	delay, period, timeout time.Duration
	successes, failures    int
}

// timingOf reads a probe; what is not set gets the API's default
// (pkg/apis/core/v1/defaults.go).
func timingOf(p *v1.Probe) timing {
	return timing{
		delay:     time.Duration(max(p.InitialDelaySeconds, 0)) * time.Second,
		period:    time.Duration(or(p.PeriodSeconds, 10)) * time.Second,
		timeout:   time.Duration(or(p.TimeoutSeconds, 1)) * time.Second,
		successes: int(or(p.SuccessThreshold, 1)),
		failures:  int(or(p.FailureThreshold, 3)),
	}
}

func or(n, fallback int32) int32 {
	if n <= 0 {
		return fallback
	}
	return n
}

// startupHurry is the longest that a startup probe without a delay leaves a
// container in peace: readiness waits for it.
const startupHurry = time.Second

// first is how long after its container's start a probe runs for the first
// time.
func (t *timing) first(k kind) time.Duration {
	switch {
	case t.delay > 0 || k == readiness:
		return t.delay
	case k == startup:
		return min(t.period, startupHurry)
	}
	return t.period
}

// span is how long after the start a startup probe has had its last word.
func (t *timing) span() time.Duration {
	const limit = 365 * 24 * time.Hour
	if t.period > limit/time.Duration(t.failures) {
		return limit
	}
	return t.delay + t.period*time.Duration(t.failures)
}

// after is the first of base, base+period, base+2*period, ... that is not
// before now.
func after(base time.Time, period time.Duration, now time.Time) time.Time {
	late := now.Sub(base)
	if late <= 0 {
		return base
	}
	return base.Add((late + period - 1) / period * period)
}
