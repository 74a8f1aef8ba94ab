package podsync

import (
	"errors"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tinylet/tinylet/agent/container/criconfig"
	"github.com/tinylet/tinylet/agent/metrics"
	"github.com/tinylet/tinylet/agent/node/shutdown"
	"github.com/tinylet/tinylet/agent/pod"
	"github.com/tinylet/tinylet/agent/podworker/admission"
	"github.com/tinylet/tinylet/agent/podworker/podstatus"
)

// Eviction is why a pod fails for the node's sake, and what is told of it.
type Eviction struct {
	// Reason is that of the pod's status and, with Annotations, of its event.
	Reason      podstatus.Reason
	Annotations map[string]string
	// Disruption is the pod's condition DisruptionTarget; nil where the pod
	// itself is to blame.
	Disruption *podstatus.Reason
	// Signal counts it in kubelet_evictions; "" is not counted.
	Signal string
}

// Evict makes a wanted pod fail for a reason of the node's: its worker stops
// it, and it does not start again. It does not block; a pod that fails
// already stays as it is.
func (s *Syncer) Evict(uid types.UID, why podstatus.Reason) {
	s.EvictAs(uid, &Eviction{
		Reason:     why,
		Disruption: &podstatus.Reason{Reason: v1.PodReasonTerminationByKubelet, Message: disruptionMessage(&why)},
	})
}

// EvictAs is Evict with all that is told, and says whether the pod did not
// fail already. The Eviction is kept.
func (s *Syncer) EvictAs(uid types.UID, e *Eviction) (first bool) {
	f := s.factsOf(uid)
	s.mu.Lock()
	first = f.evicted == nil
	if first {
		f.evicted = e
	}
	s.mu.Unlock()
	if !first {
		return false
	}
	if e.Signal != "" {
		s.counted.evictions.Add(1, metrics.AppendLabel(nil, "eviction_signal", e.Signal))
	}
	s.Wake(uid)
	return true
}

// Kill ends every process of a pod at once, without the runtime, which finds
// its containers ended. It does not wait for their end. Without cgroups of pods
// it does nothing.
func (s *Syncer) Kill(uid types.UID) error {
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

// disruptionMessage is that of the condition DisruptionTarget.
func disruptionMessage(why *podstatus.Reason) string {
	if why.Reason == admission.ReasonPreempted {
		return admission.ConditionOfPreempted
	}
	return why.Message
}

// evicted says whether the pod is to fail for a reason of the node's, and
// notes it.
func (s *Syncer) evicted(p *v1.Pod, f *facts) bool {
	s.mu.Lock()
	e := f.evicted
	s.mu.Unlock()
	if e == nil {
		return false
	}
	if f.failed == nil {
		f.failed, f.disruption = &e.Reason, e.Disruption
		if e.Reason.Reason != shutdown.ReasonEnded { // that is an event of the node's
			s.Events.Annotated(pod.RefOf(p), e.Reason.Reason, e.Reason.Message, e.Annotations)
		}
	}
	return true
}
