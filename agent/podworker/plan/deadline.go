package plan

import (
	"math"
	"time"

	"github.com/tinylet/tinylet/agent/pod"
)

// The kubelet's words for a pod that ran past its activeDeadlineSeconds
// (pkg/kubelet/active_deadline.go).
const (
	reasonDeadline  = "DeadlineExceeded"
	messageDeadline = "Pod was active on the node longer than the specified deadline"
)

// deadline gives up a pod that was active for too long, or plans to look
// again when it will have been.
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
		p.until(p.Now.Add(limit - active))
		return
	}
	p.finish()
	p.out.FailReason, p.out.FailMessage = reasonDeadline, messageDeadline
}

// activeFor is how long the pod is active: what the agent measured itself, on
// the monotonic clock if the caller's times have it, and what went before.
// That only the wall clock knows: as the age of the oldest evidence when the
// agent first saw the pod, or now, less what was measured. The two differ by
// how far the clock was set meanwhile, and the smaller one counts.
func activeFor(measured, ageThen, ageNow time.Duration) time.Duration {
	return measured + max(0, min(ageThen, ageNow-measured))
}

// activeSince is when the pod began, by the oldest evidence: an agent that
// was started again knows only what it saw itself.
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
