package podsync

import (
	"context"
	"errors"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tinylet/tinylet/agent/container/criconfig"
	"github.com/tinylet/tinylet/agent/health"
	"github.com/tinylet/tinylet/agent/metrics"
	"github.com/tinylet/tinylet/agent/node/shutdown"
	"github.com/tinylet/tinylet/agent/pod"
	"github.com/tinylet/tinylet/agent/podworker/admission"
	"github.com/tinylet/tinylet/agent/podworker/podstatus"
)

// Eviction is why the node makes a pod fail, and how that is reported.
type Eviction struct {
	// Reason is the reason of the pod's status and of its event. Annotations
	// are those of the event.
	Reason      podstatus.Reason
	Annotations map[string]string
	// Disruption is the pod's condition DisruptionTarget; nil if the pod itself
	// is the cause.
	Disruption *podstatus.Reason
	// Signal is the label in kubelet_evictions; an eviction with "" is not
	// counted.
	Signal string
}

// Evict makes a pod fail for a reason of the node, although a source has it. The pod's
// next sync ends it, and it does not start again. A pod that was evicted before keeps
// its first reason. Evict does not block.
func (s *Syncer) Evict(uid types.UID, why podstatus.Reason) {
	disruption := podstatus.Reason{Reason: v1.PodReasonTerminationByKubelet, Message: why.Message}
	if why.Reason == admission.ReasonPreempted {
		disruption.Message = admission.PreemptedConditionMessage
	}
	s.EvictWith(uid, &Eviction{Reason: why, Disruption: &disruption})
}

// EvictWith is Evict with all details of the report. The Syncer retains e.
func (s *Syncer) EvictWith(uid types.UID, e *Eviction) {
	if f := s.existing(uid); f != nil && f.evict(e, &s.counted.evictions) {
		s.Wake(uid)
	}
}

// evict records and counts the eviction. It returns false if the pod was evicted before.
func (f *syncState) evict(e *Eviction, evictions *metrics.CounterVec) bool {
	if !f.evicted.CompareAndSwap(nil, e) {
		return false
	}
	if e.Signal != "" {
		evictions.Add(1, metrics.AppendLabel(nil, "eviction_signal", e.Signal))
	}
	return true
}

// KillProcesses kills every process of a pod through its cgroups, without the runtime,
// which then observes that the containers exited. It does not wait for the processes to
// end. It does nothing where the agent makes no pod cgroups, or before the runtime has
// reported its settings.
func (s *Syncer) KillProcesses(uid types.UID) error {
	n, ok := s.PeekNode()
	if !ok || s.Cgroups == nil {
		return nil
	}
	var errs []error
	for _, path := range criconfig.PodCgroups(uid, n) {
		errs = append(errs, s.Cgroups.Kill(path))
	}
	return errors.Join(errs...)
}

// evicted reports whether the pod was evicted. Unless the pod failed before, the first call
// records the failure and emits the event.
func (s *Syncer) evicted(p *v1.Pod, f *syncState) bool {
	e := f.evicted.Load()
	if e == nil {
		return false
	}
	if f.failed == nil {
		f.failed, f.disruption = &e.Reason, e.Disruption
		if e.Reason.Reason != shutdown.ReasonEnded { // a shutdown has an event of the node instead
			s.Events.AnnotatedWarning(pod.RefOf(p), e.Reason.Reason, e.Reason.Message, e.Annotations)
		}
	}
	return true
}

// Unlocked returns nil as soon as the lock of the per-pod sync state could be
// taken, and an error if it is held until ctx ends.
func (s *Syncer) Unlocked(ctx context.Context) error {
	return health.CheckLock(ctx, s.mu.TryLock, s.mu.Unlock)
}
