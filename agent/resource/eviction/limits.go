package eviction

import (
	"context"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/tinylet/tinylet/agent/resource/eviction/policy"
)

// limitsLook is how often the pods that have a limit on the node's disk are
// measured: files grow without any event.
const limitsLook = 30 * time.Second

// LimitsConfig is what Limits work with.
type LimitsConfig struct {
	// Layout says which file systems are one; ok is false while that is not
	// known, and then nobody is measured.
	Layout func() (l policy.Layout, ok bool)
	// Pods are those for which Limited holds, that have not ended and do not
	// end already, with their figures of the disk.
	Pods func(context.Context) []policy.Pod
	// Evict is that of Config; nobody waits for gone.
	Evict func(*v1.Pod, policy.Eviction) (gone <-chan struct{})
	// Looked is told after each turn; it must not block.
	Looked func()
}

// Limits evict pods that have more on the node's disk than they may.
type Limits struct {
	LimitsConfig
	arrived chan struct{} // one slot
}

// NewLimits makes Limits that have not looked yet.
func NewLimits(c LimitsConfig) *Limits { return &Limits{c, make(chan struct{}, 1)} }

// Arrived is told of each pod that is wanted. It does not block.
func (l *Limits) Arrived(p *v1.Pod) {
	if policy.Limited(p) {
		select {
		case l.arrived <- struct{}{}:
		default:
		}
	}
}

// Run looks at the pods until ctx ends, and returns its cause. While none has
// a limit it sleeps.
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

// look evicts who is over, and says whether anybody is left to watch.
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
