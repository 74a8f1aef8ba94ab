package podsync

import (
	"context"
	"fmt"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tinylet/tinylet/agent/container"
	"github.com/tinylet/tinylet/agent/node/shutdown"
	"github.com/tinylet/tinylet/agent/pod"
	"github.com/tinylet/tinylet/agent/podworker"
	"github.com/tinylet/tinylet/agent/podworker/admission"
	"github.com/tinylet/tinylet/agent/podworker/podstatus"
)

// judge says whether the pod may not run here, or not yet. A pod that runs is
// never refused: what another agent started, or this one before its restart,
// stays, and is only watched if it has parts that are not built.
func (s *Syncer) judge(ctx context.Context, p *v1.Pod, o *container.Observed, f *facts) (result podworker.Result, refused bool) {
	unsupported, r, wanted := s.admission.verdict(p.UID)
	switch {
	case !wanted: // its termination is on the way
		return podworker.Result{}, true
	case unsupported != "" && o.Running():
		s.Events.Warning(pod.RefOf(p), admission.ReasonFeature, "left running as another agent started it: "+unsupported)
		s.report(ctx, p, o, f)
		return podworker.Result{}, true
	case unsupported != "":
		return s.reject(ctx, p, o, f, &admission.Rejection{Reason: admission.ReasonFeature, Message: unsupported}), true
	case s.ShuttingDown != nil && s.ShuttingDown() && len(o.Containers) == 0 && !o.Running():
		return s.reject(ctx, p, o, f, &admission.Rejection{Reason: shutdown.ReasonRejected, Message: shutdown.MessageRejected}), true
	case r == nil:
		return podworker.Result{}, false
	case o.Running(), s.ended(p, o, f):
		s.admission.claim(p.UID)
		return podworker.Result{}, false
	case len(r.Preempt) == 0:
		return s.reject(ctx, p, o, f, r), true
	}
	for _, victim := range r.Preempt {
		s.Evict(victim, podstatus.Reason{Reason: admission.ReasonPreempted, Message: admission.MessagePreempted})
	}
	if !s.admission.retry(p.UID, s.AdmitNode()) {
		return podworker.Result{}, true // woken when the last of them has ended
	}
	return s.judge(ctx, p, o, f)
}

// confirm judges a pod anew that the node's labels or taints speak against,
// once these have been asked for again.
func (s *Syncer) confirm(ctx context.Context, p *v1.Pod, f *facts) error {
	if f.confirmed || s.ConfirmNode == nil || pod.IsStatic(p) {
		return nil
	}
	_, r, _ := s.admission.verdict(p.UID)
	if r == nil || (r.Reason != admission.ReasonNodeAffinity && r.Reason != admission.ReasonTaint) {
		return nil
	}
	if err := s.ConfirmNode(ctx); err != nil {
		return fmt.Errorf("read the node's labels and taints anew before the pod is refused for them: %w", err)
	}
	f.confirmed = true
	s.admission.retry(p.UID, s.AdmitNode())
	return nil
}

// ended says whether the pod ran to its end: then it takes nothing, and its
// status tells of that end.
func (s *Syncer) ended(p *v1.Pod, o *container.Observed, f *facts) bool {
	if len(o.Containers) == 0 {
		return false
	}
	actions := s.planFor(p, o, f)
	return actions.Done && actions.FailReason == ""
}

// reject ends a pod that never ran, for good.
func (s *Syncer) reject(ctx context.Context, p *v1.Pod, o *container.Observed, f *facts, r *admission.Rejection) podworker.Result {
	f.rejected = &podstatus.Reason{Reason: r.Reason, Message: r.Message}
	s.Events.Warning(pod.RefOf(p), r.Reason, r.Message)
	s.placeFree(s.admission.end(p.UID), podTerminated)
	s.report(ctx, p, o, f)
	return podworker.Result{Done: true}
}

// placeFree has pods look again that waited for another's end; trigger is for
// metrics.
func (s *Syncer) placeFree(waiting []types.UID, trigger string) {
	for _, uid := range waiting {
		s.Wake(uid)
	}
	s.roomFreed(trigger)
}
