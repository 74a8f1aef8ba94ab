package podsync

import (
	"context"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/tinylet/tinylet/agent/pod"
	"github.com/tinylet/tinylet/agent/status"
)

// usageLook is how often the volumes of pods are measured that have a limit
// on one: files grow without any event.
const usageLook = 30 * time.Second

// reasonEvicted is the kubelet's (pkg/kubelet/eviction/types.go).
const reasonEvicted = "Evicted"

// WatchLimits evicts pods with a volume on disk that holds more than it may,
// until ctx ends, with its cause. It sleeps while no pod has such a limit,
// and never asks the runtime.
func (s *Syncer) WatchLimits(ctx context.Context) error {
	timer := time.NewTimer(usageLook)
	timer.Stop()
	defer timer.Stop()
	waits := false
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-s.limited:
			if !waits {
				waits = true
				timer.Reset(usageLook)
			}
		case <-timer.C:
			if waits = s.measure(ctx); waits {
				timer.Reset(usageLook)
			}
		}
	}
}

// limits notes that a pod has a limit to be watched.
func (s *Syncer) limits(p *v1.Pod) {
	if limitsUsage(p) {
		select {
		case s.limited <- struct{}{}:
		default:
		}
	}
}

// measure evicts who is over, and says whether anybody is left to watch.
func (s *Syncer) measure(ctx context.Context) (left bool) {
	for _, e := range s.Statuses.List() {
		if !limitsUsage(e.Pod) || e.Status.Phase == v1.PodFailed || e.Status.Phase == v1.PodSucceeded {
			continue
		}
		left = true
		over, err := s.Volumes.Usage(ctx, e.Pod)
		if err != nil && ctx.Err() == nil {
			s.Log.Warn("volumes could not be measured", "pod", pod.RefOf(e.Pod).String(), "podUID", e.Pod.UID, "error", err)
		}
		for _, o := range over {
			if s.evict(e.Pod.UID, status.Reason{Reason: reasonEvicted, Message: o.Message()}) {
				s.counted.evictions.Add(1, signalVolumeLimit)
			}
		}
	}
	return left
}

// limitsUsage says whether a volume on disk has a limit.
func limitsUsage(p *v1.Pod) bool {
	for i := range p.Spec.Volumes {
		if e := p.Spec.Volumes[i].EmptyDir; e != nil && e.Medium == v1.StorageMediumDefault && e.SizeLimit != nil && e.SizeLimit.Sign() > 0 {
			return true
		}
	}
	return false
}
