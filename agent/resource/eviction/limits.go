package eviction

import (
	"context"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/tinylet/tinylet/agent/resource/eviction/policy"
)

// limitsLook is how often the local storage of pods with a limit is measured. It is
// polled because files grow without any event.
const limitsLook = 30 * time.Second

// LimitsConfig configures Limits.
type LimitsConfig struct {
	// Layout returns the arrangement of the node's file systems. ok is false while it
	// is not known; then no pod is measured.
	Layout func() (l policy.Layout, ok bool)
	// Pods returns the pods for which policy.Limited holds, and which are neither
	// terminated nor terminating, with their disk stats.
	Pods func(context.Context) []policy.Pod
	// Evict is as in Config; its result is ignored.
	Evict func(*v1.Pod, policy.Eviction) (gone <-chan struct{})
	// Looked is called after each check. It must not block.
	Looked func()
}

// Limits evicts pods that exceed their limits on local storage.
type Limits struct {
	LimitsConfig
	arrived chan struct{} // one slot
}

// NewLimits returns Limits for Run. It checks nothing yet.
func NewLimits(c LimitsConfig) *Limits { return &Limits{c, make(chan struct{}, 1)} }

// Arrived is called for each added pod. It does not block.
func (l *Limits) Arrived(p *v1.Pod) {
	if policy.Limited(p) {
		select {
		case l.arrived <- struct{}{}:
		default:
		}
	}
}

// Run checks the pods every limitsLook until ctx ends, and returns the cause of ctx.
// It sleeps while no pod has a limit.
func (l *Limits) Run(ctx context.Context) error {
	timer := time.NewTimer(limitsLook)
	timer.Stop()
	defer timer.Stop()
	waits := false
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-l.arrived:
			if !waits {
				waits = true
				timer.Reset(limitsLook)
			}
		case <-timer.C:
			if waits = l.look(ctx); waits {
				timer.Reset(limitsLook)
			}
		}
	}
}

// look evicts the pods that exceed a limit, and reports whether any pod is left to
// check.
func (l *Limits) look(ctx context.Context) (left bool) {
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
	l.Looked()
	return len(pods) > 0
}
