package probe

import (
	"cmp"
	"time"

	v1 "k8s.io/api/core/v1"
)

// kind is the kind of a probe: startup, liveness or readiness. kinds is their
// number.
type kind uint8

const (
	startup kind = iota
	liveness
	readiness
	kinds
)

func (k kind) String() string {
	return [kinds]string{"Startup", "Liveness", "Readiness"}[k]
}

// specOf returns the container's probe of the kind, or nil.
func (k kind) specOf(c *v1.Container) *v1.Probe {
	return [kinds]*v1.Probe{c.StartupProbe, c.LivenessProbe, c.ReadinessProbe}[k]
}

// timing has the times and thresholds of a probe.
type timing struct {
	delay, period, timeout time.Duration
	successes, failures    int
}

// timingOf returns the timing of a probe. Fields that are not set get the API's
// defaults (pkg/apis/core/v1/defaults.go).
func timingOf(p *v1.Probe) timing {
	return timing{
		delay:     time.Duration(max(p.InitialDelaySeconds, 0)) * time.Second,
		period:    time.Duration(cmp.Or(max(p.PeriodSeconds, 0), 10)) * time.Second,
		timeout:   time.Duration(cmp.Or(max(p.TimeoutSeconds, 0), 1)) * time.Second,
		successes: int(cmp.Or(max(p.SuccessThreshold, 0), 1)),
		failures:  int(cmp.Or(max(p.FailureThreshold, 0), 3)),
	}
}

// maxFirstStartup is the maximum time from a container's start to the first run of a
// startup probe without a delay. It is short because the readiness probe waits
// for the startup probe.
const maxFirstStartup = time.Second

// firstRunAfter returns the time from the container's start to the first run of a probe.
func (t *timing) firstRunAfter(k kind) time.Duration {
	switch {
	case t.delay > 0 || k == readiness:
		return t.delay
	case k == startup:
		return min(t.period, maxFirstStartup)
	}
	return t.period
}

// startupDecidedAfter returns the time from the container's start after which its startup
// probe must have succeeded or failed, at most a year.
func (t *timing) startupDecidedAfter() time.Duration {
	const limit = 365 * 24 * time.Hour
	if t.period > limit/time.Duration(t.failures) {
		return limit
	}
	return t.delay + t.period*time.Duration(t.failures)
}

// nextTick returns the first of base, base+period, base+2*period, ... that is not
// before now.
func nextTick(base time.Time, period time.Duration, now time.Time) time.Time {
	late := now.Sub(base)
	if late <= 0 {
		return base
	}
	return base.Add((late + period - 1) / period * period)
}
