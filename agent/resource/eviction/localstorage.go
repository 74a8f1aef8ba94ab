package eviction

import (
	"context"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/tinylet/tinylet/agent/resource/eviction/policy"
	"github.com/tinylet/tinylet/agent/wait"
)

// localStoragePeriod is how often the local storage of pods with a limit is measured. It is
// polled because files grow without any event.
const localStoragePeriod = 30 * time.Second

// localStorageConfig configures a localStorage.
type localStorageConfig struct {
	// Added is set when a pod was added for which policy.HasLimit holds.
	Added wait.Wakeup
	// Layout returns the arrangement of the node's file systems. ok is false while it
	// is not known; then no pod is measured.
	Layout func() (l policy.Layout, ok bool)
	// Pods returns the pods for which policy.HasLimit holds, and which are neither
	// terminated nor terminating, with their disk stats.
	Pods func(context.Context) []policy.Pod
	// Evict is as in loopConfig; its result is ignored.
	Evict func(*v1.Pod, policy.Eviction) (gone <-chan struct{})
	// AfterCheck is called after each check. It must not block.
	AfterCheck func()
}

// localStorage evicts pods that exceed their limits on local storage.
type localStorage struct{ localStorageConfig }

// newLocalStorage returns a localStorage for run. It checks nothing yet.
func newLocalStorage(c localStorageConfig) *localStorage {
	return &localStorage{c}
}

// run checks the pods every localStoragePeriod until ctx ends, and returns the cause of ctx.
// It sleeps while no pod has a limit.
func (l *localStorage) run(ctx context.Context) error {
	timer := time.NewTimer(localStoragePeriod)
	timer.Stop()
	defer timer.Stop()
	waits := false
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-l.Added:
			if !waits {
				waits = true
				timer.Reset(localStoragePeriod)
			}
		case <-timer.C:
			if waits = l.evictOverLimit(ctx); waits {
				timer.Reset(localStoragePeriod)
			}
		}
	}
}

// evictOverLimit evicts the pods that exceed a limit, and reports whether any pod is left to
// check.
func (l *localStorage) evictOverLimit(ctx context.Context) (left bool) {
	layout, ok := l.Layout()
	if !ok {
		return true
	}
	pods := l.Pods(ctx)
	for i := range pods {
		if e, over := policy.OverLimit(&pods[i], layout); over {
			l.Evict(pods[i].Pod, e)
		}
	}
	l.AfterCheck()
	return len(pods) > 0
}
