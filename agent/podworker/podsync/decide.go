package podsync

import (
	"errors"
	"fmt"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tinylet/tinylet/agent/pod"
	"github.com/tinylet/tinylet/agent/podworker/admission"
	"github.com/tinylet/tinylet/agent/podworker/podstatus"
	"github.com/tinylet/tinylet/agent/resource/resize"
)

// Undecided decides the due resizes of all pods. It reports whether the resize
// of this pod still has to be decided or persisted; then the pod's spec must
// not be taken for its allocation. It blocks on the disk. It decides nothing
// before all sources have reported their pods, since a resize might take the
// room of one of those.
func (s *Syncer) Undecided(uid types.UID) bool {
	s.decideResizes(uid)
	return s.resizes.isDue(uid)
}

// SourcesReady triggers the decision of the resizes that waited for all
// sources. It does not block.
func (s *Syncer) SourcesReady() {
	for _, next := range s.resizes.allDue() {
		s.Wake(next.Pod.UID)
	}
}

// Reconciled processes the API server's status of a pod whose spec has not
// changed. It does not block.
func (s *Syncer) Reconciled(p *v1.Pod) {
	if s.resizes.reconcile(p) {
		s.Wake(p.UID)
	}
}

// decideResizes decides the due resizes of all pods. The worker of the pod by
// calls it; that pod is alive and needs no wakeup.
func (s *Syncer) decideResizes(by types.UID) {
	s.resizes.begin(by)
	if len(s.resizes.allDue()) == 0 || s.Ready != nil && !s.Ready() {
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
	d := resize.Decide(p, given, resize.Node{Features: s.Resizable, Room: s.roomFor})
	for _, victim := range d.Preempt {
		s.Evict(victim, podstatus.Reason{Reason: admission.ReasonPreempted, Message: admission.MessagePreempted})
	}
	if len(d.Preempt) > 0 {
		s.resizes.change(p.UID, func(e *resizable) { e.due = e.wanted != p })
		return nil // decided again when the last victim has ended
	}
	if d.Outcome == resize.Allocate {
		given = resize.Of(p)
	}
	if d.Outcome != resize.Unchanged && s.resizes.record != nil {
		if err := s.resizes.record.Put(p.UID, given); err != nil {
			return err
		}
	}
	tell := false
	_, st, _ := s.Statuses.Get(p.UID)
	s.resizes.change(p.UID, func(e *resizable) {
		s.countAccepted(e, &d)
		if d.Outcome == resize.Allocate && st != nil {
			e.keepMemory(e.given.Apply(p), st)
		}
		e.given, e.due, e.behind = &given, e.wanted != p, e.behind || d.Outcome == resize.Allocate
		e.conditions, tell = e.conditions.Decided(d, p.Generation, s.now())
	})
	s.admission.resize(s.resizes.allocated(p))
	if tell {
		s.countInfeasible(&d)
		s.tellDecision(p, &d)
	}
	return nil
}

// tellDecision emits the event of a decision.
func (s *Syncer) tellDecision(p *v1.Pod, d *resize.Decision) {
	ref := pod.RefOf(p)
	switch d.Outcome {
	case resize.Allocate:
		s.Events.Normal(ref, resize.ReasonStarted, resize.EventMessage(resize.PrefixStarted, p, p.Generation, ""))
	case resize.Deferred:
		s.Events.Warning(ref, resize.ReasonDeferred, resize.EventMessage(resize.PrefixPending+d.Reason, p, p.Generation, d.Message))
	case resize.Infeasible:
		s.Events.Warning(ref, resize.ReasonInfeasible, resize.EventMessage(resize.PrefixPending+d.Reason, p, p.Generation, d.Message))
	case resize.Unchanged:
	}
}

// roomFor checks a pod of another size by the rules for a new pod.
func (s *Syncer) roomFor(p *v1.Pod) resize.Room {
	r := s.admission.fits(p, s.AdmitNode())
	switch {
	case r == nil:
		return resize.Room{}
	case len(r.Preempt) > 0:
		return resize.Room{Preempt: r.Preempt}
	}
	return resize.Room{Reason: r.Reason, Message: r.Message}
}

// roomFreed triggers a new decision of the deferred resizes, since a pod uses
// less or has ended. It does not block.
func (s *Syncer) roomFreed(trigger string) {
	for _, uid := range s.resizes.again(trigger) {
		s.Wake(uid)
	}
}

// reserved returns the pod with the resources that others have to count for it
// while it is resized.
func (s *Syncer) reserved(p *v1.Pod) *v1.Pod {
	if !s.resizes.resized(p.UID) {
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

// forgetResizes drops the allocation of a pod whose remains are removed.
func (s *Syncer) forgetResizes(ref pod.Ref) error {
	if err := s.resizes.forget(ref.UID); err != nil {
		return fmt.Errorf("drop resource allocation of pod %s: %w", ref, err)
	}
	return nil
}

// errNotShown means that a resize was carried out, but the actual resources
// differ.
var errNotShown = errors.New("the container runtime or the cgroup does not report the resources that were set")
