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
	end := start.Add(time.Duration(max(*seconds, 0)) * time.Second)
	if p.Now.Before(end) {
		p.until(end)
		return
	}
	p.finish()
	p.out.FailReason, p.out.FailMessage = reasonDeadline, messageDeadline
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
