package podsync

import (
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/tinylet/tinylet/agent/pod"
	"github.com/tinylet/tinylet/agent/podworker/plan"
)

// schedule stores the time until which the last plan waits, and returns the
// time of the next sync. The wall clock of a board may be stepped while a pod
// waits, or between the plan and this call. So the wait is measured on the
// monotonic clock, from the moment at which the plan read the clock.
func (f *syncState) schedule(next time.Time) time.Time {
	f.next, f.nextMonotonic = next, time.Time{}
	if !next.IsZero() {
		f.nextMonotonic = f.clockRead.Add(next.Round(0).Sub(f.planned.Round(0)))
	}
	return f.nextMonotonic
}

// clock returns the wall time for the next plan. It is now. If the wait of the last
// plan is over and the clock was set back meanwhile, it is the end of that wait.
func (f *syncState) clock(now time.Time) time.Time {
	f.clockRead, f.planned = now, now
	if !f.nextMonotonic.IsZero() && !now.Before(f.nextMonotonic) && now.Round(0).Before(f.next.Round(0)) {
		f.planned = f.next
	}
	return f.planned
}

// reasonBackOff is the kubelet's event reason for a crash loop.
const reasonBackOff = "BackOff"

// emitBackOffs emits one event for each crash loop backoff.
func (s *Syncer) emitBackOffs(p *v1.Pod, a *plan.Actions, f *syncState) {
	for name, w := range a.Waiting {
		if w.Reason != plan.ReasonCrashLoop || f.backoffs[name].Equal(w.Until) {
			continue
		}
		if f.backoffs == nil {
			f.backoffs = make(map[string]time.Time)
		}
		f.backoffs[name] = w.Until
		s.Events.Warning(pod.RefOf(p), reasonBackOff, "Back-off restarting failed container "+name+" in pod "+p.Name)
	}
}
