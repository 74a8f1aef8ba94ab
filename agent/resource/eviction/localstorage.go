package eviction

import (
	"context"
	"time"

	"github.com/tinylet/tinylet/agent/resource/eviction/policy"
)

// localStoragePeriod is how often the local storage of pods with a limit is measured. It is
// polled because files grow without any event.
const localStoragePeriod = 30 * time.Second

// RunLocalStorage evicts pods that exceed their limits on local storage, until ctx ends, and
// returns the cause of ctx. It sleeps while no pod has a limit.
func (m *Manager) RunLocalStorage(ctx context.Context) error {
	timer := time.NewTimer(localStoragePeriod)
	timer.Stop()
	defer timer.Stop()
	waits := false
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-m.limited:
			if !waits {
				waits = true
				timer.Reset(localStoragePeriod)
			}
		case <-timer.C:
			if waits = m.evictOverLimit(ctx); waits {
				timer.Reset(localStoragePeriod)
			}
		}
	}
}

// evictOverLimit evicts the pods that exceed a limit, and reports whether any pod is left to
// check. It measures none until the runtime has reported its file systems.
func (m *Manager) evictOverLimit(ctx context.Context) (left bool) {
	fs := m.fs.Load()
	if fs == nil {
		return true
	}
	pods := m.limitedPods(ctx)
	for i := range pods {
		if e, over := policy.OverLimit(&pods[i], fs.layout); over {
			m.Pods.Evict(pods[i].Pod, e)
		}
	}
	m.Trigger()
	return len(pods) > 0
}
