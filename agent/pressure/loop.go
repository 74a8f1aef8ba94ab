// Package pressure owns the loop that ends pods when the node runs short: it
// looks when the kernel or somebody else gives a sign, has agent/evict decide,
// gives back what the node itself can spare, and then ends one pod after the
// other until there is enough.
//
// It has no period of its own. While nothing is wrong it sleeps until a sign:
// of memory the kernel gives one (PSI, memory.events), and for disks and
// process IDs, of which the kernel gives none, whoever wakes up anyway.
package pressure

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/tinylet/tinylet/agent/evict"
	"github.com/tinylet/tinylet/agent/pod"
)

// untilGone bounds the wait for a pod that was told to end: upstream looks at
// the node again after as long (podCleanupTimeout in
// pkg/kubelet/eviction/eviction_manager.go).
const untilGone = 30 * time.Second

// Config is what the loop decides by, and what it does it with. What is called
// is called by Run, one call after another.
type Config struct {
	// Thresholds are those of the Layout.
	Thresholds []evict.Threshold
	Layout     evict.Layout
	// Transition is how long a condition stays, MaxGrace the longest grace for
	// a soft threshold.
	Transition, MaxGrace time.Duration

	// Observe measures what the thresholds are of. What could not be measured
	// is not known.
	Observe func(context.Context) evict.Observations
	// Pods are those that something runs of and that do not end already, with
	// the figures that ranking by the signal needs.
	Pods func(context.Context, evict.Signal) []evict.Pod
	// Reclaim gives back what the node can spare.
	Reclaim func(context.Context, evict.Reclaim) error
	// Evict has a pod end, and tells of it; gone is closed when nothing of it
	// runs any more. It is nil where the pod ends already or is not known.
	Evict func(*v1.Pod, evict.Eviction) (gone <-chan struct{})
	// Changed is told the conditions when they are others than before, and Met
	// the signal before something is done about it.
	Changed func(evict.Conditions)
	Met     func(evict.Signal)

	Log *slog.Logger
}

// Loop is the loop. Its methods are safe for concurrent use.
type Loop struct {
	Config
	tracker *evict.Tracker
	sign    chan struct{}
	under   atomic.Pointer[evict.Conditions]
}

// New makes a loop that has not looked yet.
func New(c Config) *Loop {
	l := &Loop{Config: c, tracker: evict.NewTracker(c.Thresholds, c.Transition), sign: make(chan struct{}, 1)}
	l.under.Store(&evict.Conditions{})
	return l
}

// Look has the node looked at, soon and once for all signs until then. It does
// not block.
func (l *Loop) Look() {
	select {
	case l.sign <- struct{}{}:
	default:
	}
}

// Under are the conditions that the node is under, for those who decide which
// pods may come.
func (l *Loop) Under() evict.Conditions { return *l.under.Load() }

// Run looks once, and then at each sign and when a grace or a condition ends,
// until the context does, with its cause.
func (l *Loop) Run(ctx context.Context) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-l.sign:
		case <-timer.C:
		}
		if next := l.look(ctx); next.IsZero() {
			timer.Stop()
		} else {
			timer.Reset(time.Until(next))
		}
	}
}

// look is one turn, and says when the next one is due without a sign.
func (l *Loop) look(ctx context.Context) (next time.Time) {
	seen := l.Observe(ctx)
	verdict := l.tracker.Step(&seen, time.Now())
	if verdict.Under != l.Under() {
		l.under.Store(&verdict.Under)
		l.Changed(verdict.Under)
	}
	if len(verdict.Act) == 0 || ctx.Err() != nil {
		return verdict.Next
	}
	first := verdict.Act[0]
	l.Met(first.Signal)
	l.Log.Warn("the node runs short", "signal", first.Signal.String(), "threshold", first.Value.Text,
		"available", seen[first.Signal].Available, "capacity", seen[first.Signal].Capacity)
	if l.spare(ctx, first.Signal) {
		return verdict.Next
	}
	for _, p := range evict.Rank(l.Pods(ctx, first.Signal), first.Signal, l.Layout) {
		eviction := evict.Describe(p, verdict.Act, &seen, l.MaxGrace)
		gone := l.Evict(p.Pod, eviction)
		if gone == nil {
			continue
		}
		l.Log.Warn("a pod is evicted", "pod", pod.RefOf(p.Pod).String(), "podUID", p.Pod.UID,
			"signal", eviction.Signal, "grace", eviction.Grace, "message", eviction.Message)
		l.wait(ctx, gone)
		return time.Now()
	}
	l.Log.Error("the node runs short and no pod can be evicted: all that run are critical, or end already",
		"signal", first.Signal.String())
	return verdict.Next
}

// spare gives back what the node itself can, and says whether that is enough.
func (l *Loop) spare(ctx context.Context, s evict.Signal) bool {
	reclaims := evict.Reclaims(s, l.Layout)
	if len(reclaims) == 0 {
		return false
	}
	for _, r := range reclaims {
		if err := l.Reclaim(ctx, r); err != nil && ctx.Err() == nil {
			l.Log.Warn("what the node could spare could not be given back", "what", r.String(), "signal", s.String(), "error", err)
		}
	}
	seen := l.Observe(ctx)
	if !l.tracker.Reclaimed(&seen) {
		return false
	}
	l.Log.Info("the node has enough again without ending a pod", "signal", s.String(), "available", seen[s].Available)
	return true
}

func (l *Loop) wait(ctx context.Context, gone <-chan struct{}) {
	limit := time.NewTimer(untilGone)
	defer limit.Stop()
	select {
	case <-gone:
	case <-limit.C:
	case <-ctx.Done():
	}
}
