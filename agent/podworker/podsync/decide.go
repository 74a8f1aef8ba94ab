package podsync

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tinylet/tinylet/agent/metrics"
	"github.com/tinylet/tinylet/agent/pod"
	"github.com/tinylet/tinylet/agent/podworker/admission"
	"github.com/tinylet/tinylet/agent/podworker/podstatus"
	"github.com/tinylet/tinylet/agent/resource/resize"
)

// ResizeUndecided decides the due resizes of all pods. It reports whether the resize of
// this pod still has to be decided or persisted, such as one that waits for preempted
// pods to end. Then the pod's spec is not its allocation. It blocks on the disk. It
// decides nothing before all sources have reported their pods, since a resize could use
// resources that one of those pods needs.
func (s *Syncer) ResizeUndecided(uid types.UID) bool {
	s.decideResizes(uid)
	e := s.resizes.state(uid)
	return e.due || e.waiting
}

// SourcesReady wakes the pods whose resizes waited for all sources. It does not block.
func (s *Syncer) SourcesReady() {
	for _, next := range s.resizes.allDue() {
		s.Wake(next.Pod.UID)
	}
}

// OnStatusReconciled processes the API server's status of a pod whose spec has not
// changed. It wakes the pod if its resize has to be decided. It does not block.
func (s *Syncer) OnStatusReconciled(p *v1.Pod) {
	if s.resizes.reconcile(p) {
		s.Wake(p.UID)
	}
}

// decideResizes decides the due resizes of all pods. The worker of the pod by calls it,
// so that pod needs no wakeup.
func (s *Syncer) decideResizes(by types.UID) {
	s.resizes.begin(by)
	if len(s.resizes.allDue()) == 0 || !s.Ready() {
		return
	}
	s.resizes.deciding.Lock()
	defer s.resizes.deciding.Unlock()
	for _, next := range s.resizes.allDue() {
		if err := s.decideResize(next); err != nil {
			s.Log.Warn("cannot persist resize decision", "pod", pod.RefOf(next.Pod).String(), "podUID", next.Pod.UID, "error", err)
			continue // no wakeup: the woken pod would retry it, and wake this one
		}
		if next.Pod.UID != by {
			s.Wake(next.Pod.UID)
		}
	}
}

// decideResize decides one resize, and persists the decision before it takes
// effect.
func (s *Syncer) decideResize(next resize.Pending) error {
	p, given := next.Pod, next.Allocation
	d := resize.Decide(p, given, s.Resizable, s.roomFor)
	for _, victim := range d.Preempt {
		s.Evict(victim, podstatus.Reason{Reason: admission.ReasonPreempted, Message: admission.MessagePreempted})
	}
	if len(d.Preempt) > 0 {
		s.resizes.change(p.UID, func(e *resizable) { e.due, e.waiting = e.desired != p, true })
		return nil // decided again when the last victim has ended
	}
	if d.Outcome == resize.Allocate {
		given = resize.FromSpec(p)
	}
	if d.Outcome != resize.Unchanged {
		if err := s.Allocations.Put(p.UID, given); err != nil {
			return err
		}
	}
	eventDue := false
	_, st, _ := s.Statuses.Get(p.UID)
	s.resizes.change(p.UID, func(e *resizable) {
		s.countAccepted(e, &d)
		if d.Outcome == resize.Allocate && st != nil {
			e.keepMemory(e.allocation.Apply(p), st)
		}
		e.waiting = false
		e.allocation, e.due, e.stale = &given, e.desired != p, e.stale || d.Outcome == resize.Allocate
		e.conditions, eventDue = e.conditions.AfterDecision(d, p.Generation, s.now())
	})
	s.admission.resize(s.resizes.allocated(p))
	if eventDue {
		s.emitDecision(p, &d)
	}
	return nil
}

// emitDecision emits the event for a decision, and counts an infeasible resize.
func (s *Syncer) emitDecision(p *v1.Pod, d *resize.Decision) {
	ref := pod.RefOf(p)
	switch d.Outcome {
	case resize.Allocate:
		s.Events.Normal(ref, resize.ReasonStarted, resize.EventMessage(resize.PrefixStarted, p, p.Generation, ""))
	case resize.Deferred:
		s.Events.Warning(ref, resize.ReasonDeferred, resize.EventMessage(resize.PrefixPending+d.Reason, p, p.Generation, d.Message))
	case resize.Infeasible:
		s.counted.infeasible.Add(1, metrics.AppendLabel(nil, "reason_detail", d.Cause))
		s.Events.Warning(ref, resize.ReasonInfeasible, resize.EventMessage(resize.PrefixPending+d.Reason, p, p.Generation, d.Message))
	case resize.Unchanged:
	}
}

// roomFor checks a pod with other requests by the rules for a new pod.
func (s *Syncer) roomFor(p *v1.Pod) resize.Fit {
	r := s.admission.fits(p, s.AdmitNode())
	switch {
	case r == nil:
		return resize.Fit{}
	case len(r.Preempt) > 0:
		return resize.Fit{Preempt: r.Preempt}
	}
	return resize.Fit{Reason: r.Reason, Message: r.Message}
}

// roomFreed wakes the pods with deferred resizes, since a pod uses less or has ended.
// It does not block.
func (s *Syncer) roomFreed(trigger string) {
	for _, uid := range s.resizes.retryDeferred(trigger) {
		s.Wake(uid)
	}
}

// reserved returns the pod with the resources that others have to count for it
// while it is resized.
func (s *Syncer) reserved(p *v1.Pod) *v1.Pod {
	if s.resizes.state(p.UID).allocation == nil {
		return p
	}
	_, st, ok := s.Statuses.Get(p.UID)
	if !ok {
		return p
	}
	seen := *p
	seen.Status = *st
	return resize.Reserved(&seen)
}
