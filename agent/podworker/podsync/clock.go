package podsync

import (
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/tinylet/tinylet/agent/pod"
	"github.com/tinylet/tinylet/agent/podworker/plan"
)

// schedule remembers until when the last plan waits, and answers when to look
// again. A board's wall clock may be set while a pod waits, or between the plan
// and here; the wait is measured from the plan's reading of the clock on the
// monotonic clock, and no jump prolongs it.
func (f *facts) schedule(next time.Time) time.Time {
	f.next, f.due = next, time.Time{}
	if !next.IsZero() {
		f.due = f.read.Add(next.Round(0).Sub(f.planned.Round(0)))
	}
	return f.due
}

// clock is the wall time for the next plan: now, or the moment to which the
// last plan waited if that wait is over and the clock was set back meanwhile.
func (f *facts) clock(now time.Time) time.Time {
	f.read, f.planned = now, now
	if !f.due.IsZero() && !now.Before(f.due) && now.Round(0).Before(f.next.Round(0)) {
		f.planned = f.next
	}
	return f.planned
}

// reasonBackOff is the kubelet's reason of the event for a crash loop.
const reasonBackOff = "BackOff"

// tellBackoffs makes one event for each crash-loop wait.
func (s *Syncer) tellBackoffs(p *v1.Pod, a *plan.Actions, f *facts) {
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
