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
	"github.com/tinylet/tinylet/agent/podworker/plan"
	"github.com/tinylet/tinylet/agent/podworker/podstatus"
)

// admit reports whether the sync has to end because the pod is not admitted, or not yet.
// A running pod is never rejected: a pod that another agent started, or this one before
// its restart, keeps running. If it uses unsupported fields, only its status is
// reported. A pod that is terminal in the API server is not decided again: the plan only
// cleans it up. admit evicts the pods that have to end first.
func (s *Syncer) admit(ctx context.Context, p *v1.Pod, o *container.Observed, f *syncState) (result podworker.Result, refused bool) {
	unsupported, r, desired := s.admission.result(p.UID)
	switch {
	case !desired: // no source has it; its termination is about to begin
		return podworker.Result{}, true
	case unsupported != "" && o.Running():
		s.Events.Warning(pod.RefOf(p), admission.ReasonFeature, "The running pod is kept despite unsupported fields: "+unsupported)
		s.report(ctx, p, o, f)
		return podworker.Result{Done: s.ended(p, o, f)}, true
	case plan.TerminalInAPI(p):
		return podworker.Result{}, false
	case unsupported != "":
		return s.reject(ctx, p, o, f, &admission.Rejection{Reason: admission.ReasonFeature, Message: unsupported}), true
	case s.ShuttingDown() && len(o.Containers) == 0 && !o.Running():
		return s.reject(ctx, p, o, f, &admission.Rejection{Reason: shutdown.ReasonRejected, Message: shutdown.MessageRejected}), true
	case r == nil:
		return podworker.Result{}, false
	case o.Running(), s.ended(p, o, f):
		s.admission.admitRunning(p.UID)
		return podworker.Result{}, false
	case len(r.Preempt) == 0:
		return s.reject(ctx, p, o, f, r), true
	}
	for _, victim := range r.Preempt {
		s.Evict(victim, podstatus.Reason{Reason: admission.ReasonPreempted, Message: admission.MessagePreempted})
	}
	if !s.admission.retry(p.UID, s.AdmitNode()) {
		return podworker.Result{}, true // woken when the last victim has ended
	}
	return s.admit(ctx, p, o, f)
}

// confirmRejection decides again about a pod that was rejected for the node's labels or
// taints, once, after it has read these again from the API server.
func (s *Syncer) confirmRejection(ctx context.Context, p *v1.Pod, f *syncState) error {
	if f.confirmed || s.ConfirmNode == nil || pod.IsStatic(p) {
		return nil
	}
	_, r, _ := s.admission.result(p.UID)
	if r == nil || (r.Reason != admission.ReasonNodeAffinity && r.Reason != admission.ReasonTaint) {
		return nil
	}
	if err := s.ConfirmNode(ctx); err != nil {
		return fmt.Errorf("refresh node labels and taints before rejecting the pod: %w", err)
	}
	f.confirmed = true
	s.admission.retry(p.UID, s.AdmitNode())
	return nil
}

// ended reports whether the runtime's containers show that the pod ran to its end. Such a
// pod uses no resources, and its status shows how it ended.
func (s *Syncer) ended(p *v1.Pod, o *container.Observed, f *syncState) bool {
	if len(o.Containers) == 0 {
		return false
	}
	actions := s.planFor(p, o, f)
	return actions.Done && actions.FailReason == ""
}

// reject makes a pod that has nothing running fail, and emits the event.
func (s *Syncer) reject(ctx context.Context, p *v1.Pod, o *container.Observed, f *syncState, r *admission.Rejection) podworker.Result {
	f.rejected = &podstatus.Reason{Reason: r.Reason, Message: r.Message}
	s.Events.Warning(pod.RefOf(p), r.Reason, r.Message)
	s.resourcesFreed(s.admission.end(p.UID), podTerminated)
	s.report(ctx, p, o, f)
	return podworker.Result{Done: true}
}

// resourcesFreed wakes the pods that waited for another pod's end, and those with
// deferred resizes. trigger is the label in metrics.
func (s *Syncer) resourcesFreed(waiting []types.UID, trigger string) {
	for _, uid := range waiting {
		s.Wake(uid)
	}
	s.roomFreed(trigger)
}
