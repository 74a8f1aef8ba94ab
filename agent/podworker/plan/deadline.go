package plan

import (
	"math"
	"time"

	"github.com/tinylet/tinylet/agent/pod"
)

// The kubelet's reason and message for a pod that exceeded its
// activeDeadlineSeconds (pkg/kubelet/active_deadline.go).
const (
	reasonDeadline  = "DeadlineExceeded"
	messageDeadline = "Pod was active on the node longer than the specified deadline"
)

// deadline fails a pod that exceeded its active deadline. Otherwise it plans the next
// sync for the time of the deadline.
func (p *planner) deadline() {
	seconds := p.Pod.Spec.ActiveDeadlineSeconds
	if seconds == nil || p.out.Done || *seconds > math.MaxInt64/int64(time.Second) {
		return
	}
	start := p.activeSince()
	if start.IsZero() {
		return
	}
	limit := time.Duration(max(*seconds, 0)) * time.Second
	active := max(0, p.Now.Round(0).Sub(start))
	if !p.StartedAt.IsZero() {
		active = activeFor(max(0, p.Now.Sub(p.StartedAt)), p.StartedAt.Round(0).Sub(start), active)
	}
	if active < limit {
		p.wakeAt(p.Now.Add(limit - active))
		return
	}
	p.finish()
	p.out.FailReason, p.out.FailMessage = reasonDeadline, messageDeadline
}

// activeFor returns how long the pod has been active. This is the time measured since
// StartedAt, on the monotonic clock if the caller's times have it, plus the time before.
// The time before is known only from the wall clock, in two ways: the age of the oldest
// evidence at StartedAt, and its age now minus the measured time. The two differ by the
// steps of the clock since StartedAt. The smaller one counts.
func activeFor(measured, ageThen, ageNow time.Duration) time.Duration {
	return measured + max(0, min(ageThen, ageNow-measured))
}

// activeSince returns the time of the oldest evidence of the pod, since StartedAt of a
// restarted agent is later than the pod's start.
func (p *planner) activeSince() time.Time {
	oldest := p.StartedAt
	consider := func(t time.Time) {
		if !t.IsZero() && (oldest.IsZero() || t.Before(oldest)) {
			oldest = t
		}
	}
	if t := p.Pod.Status.StartTime; t != nil && !pod.IsStatic(p.Pod) {
		consider(t.Time)
	}
	for i := range p.Observed.Sandboxes {
		consider(p.Observed.Sandboxes[i].CreatedAt)
	}
	for i := range p.Observed.Containers {
		consider(p.Observed.Containers[i].CreatedAt)
	}
	return oldest
}
