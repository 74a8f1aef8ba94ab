// Package eviction owns the loop that ends pods when the node runs short: it
// looks when the kernel or somebody else gives a sign, has agent/resource/eviction/policy decide,
// gives back what the node itself can spare, and then ends one pod after the
// other until there is enough.
//
// Beside it stands the watch over what each pod may have on the node's disk
// (Limits).
//
// It has no period of its own. While nothing is wrong it sleeps until a sign:
// of memory the kernel gives one (PSI, memory.events), and for disks and
// process IDs, of which the kernel gives none, whoever wakes up anyway.
package eviction

import (
	"context"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/tinylet/tinylet/agent/config/evictionapi"
	"github.com/tinylet/tinylet/agent/pod"
	"github.com/tinylet/tinylet/agent/resource/eviction/policy"
)

// untilGone bounds the wait for a pod that was told to end, once its grace is
// over: upstream looks at the node again after as long (podCleanupTimeout in
// pkg/kubelet/eviction/eviction_manager.go).
const untilGone = 30 * time.Second

// overdue is how long a pod may take beyond its grace before it is killed
// without the runtime, which needs memory itself and may wait for it longer than
// others live. It is more than the 2 s that a preStop hook leaves of any grace.
const overdue = 5 * time.Second

// pace is the shortest time between two looks: starting a pod changes its
// status a dozen times, each of which is a sign. It is well below the second
// within which a sign of the kernel has its decision.
const pace = 200 * time.Millisecond

// Config is what the loop decides by, and what it does it with. What is called
// is called by Run, one call after another.
type Config struct {
	// Thresholds are those of the Layout.
	Thresholds []evictionapi.Threshold
	Layout     policy.Layout
	// Transition is how long a condition stays, MaxGrace the longest grace for
	// a soft threshold.
	Transition, MaxGrace time.Duration

	// Observe measures what the thresholds are of. What could not be measured
	// is not known.
	Observe func(context.Context) evictionapi.Observations
	// Pods are those that something runs of, also where they end already, with
	// the figures that ranking by the signal needs.
	Pods func(context.Context, evictionapi.Signal) []policy.Pod
	// Reclaim gives back what the node can spare.
	Reclaim func(context.Context, policy.Reclaim) error
	// Evict has a pod end, or end sooner, and tells of it; gone is closed when
	// nothing of it runs any more. It is nil where the pod was told so before,
	// or is not known.
	Evict func(*v1.Pod, policy.Eviction) (gone <-chan struct{})
	// Kill ends what runs of a pod at once, without the runtime.
	Kill func(*v1.Pod) error
	// DryRun does what Evict and Kill do, for a pod that does not exist. Keep
	// calls a function once and keeps in memory the code that it used. Both may
	// be nil.
	DryRun func(policy.Eviction)
	Keep   func(rehearse func())
	// Changed is told the conditions when they are others than before, and Met
	// the signal that something is done about.
	Changed func(evictionapi.Conditions)
	Met     func(evictionapi.Signal)

	Log *slog.Logger
}

// Loop is the loop. Its methods are safe for concurrent use.
type Loop struct {
	Config
	tracker *policy.Tracker
	sign    chan struct{}
	under   atomic.Pointer[evictionapi.Conditions]
	made    time.Time
	asked   atomic.Int64 // since made, of the first Look that was not heeded; 0 is none

	// What follows is Run's own.
	looked time.Time
	told   evictionapi.Signal // what the node is short of, as it was told
	// idle is until when nothing is done about it: nothing could be.
	idle      time.Time
	rehearsed bool
}

// New makes a loop that has not looked yet.
func New(c Config) *Loop {
	l := &Loop{Config: c, tracker: policy.NewTracker(c.Thresholds, c.Transition), sign: make(chan struct{}, 1), made: time.Now()}
	l.under.Store(&evictionapi.Conditions{})
	return l
}

// Look has the node looked at, soon and once for all signs until then. It does
// not block.
func (l *Loop) Look() {
	l.asked.CompareAndSwap(0, int64(max(time.Since(l.made), 1)))
	select {
	case l.sign <- struct{}{}:
	default:
	}
}

// Sign is a slot that has the node looked at, as Look does, when it is filled.
func (l *Loop) Sign() chan<- struct{} { return l.sign }

// Under are the conditions that the node is under, for those who decide which
// pods may come.
func (l *Loop) Under() evictionapi.Conditions { return *l.under.Load() }

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
			if !l.rest(ctx) {
				return context.Cause(ctx)
			}
		case <-timer.C:
		}
		if next := l.look(ctx); next.IsZero() {
			timer.Stop()
		} else {
			timer.Reset(time.Until(next))
		}
	}
}

// rest waits where the last look was just now, and says whether ctx still
// lives.
func (l *Loop) rest(ctx context.Context) bool {
	left := pace - time.Since(l.looked)
	if left <= 0 {
		return true
	}
	timer := time.NewTimer(left)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// look is one turn, and says when the next one is due without a sign. Where the
// node has nothing to spare, a pod goes before anything is told of it: a line of
// the log takes a node without memory a good part of a second, as pages of the
// program have to come back from the disk for it.
func (l *Loop) look(ctx context.Context) (next time.Time) {
	begun := l.begin()
	seen := l.Observe(ctx)
	l.looked = time.Now()
	verdict := l.tracker.Step(&seen, l.looked)
	changed := verdict.Under != l.Under()
	if changed {
		l.under.Store(&verdict.Under)
	}
	acts := l.acts(ctx, &verdict)
	spares := acts && len(policy.Reclaims(verdict.Act[0].Signal, l.Layout)) > 0
	var ended *victim
	if acts && !spares {
		ended = l.end(ctx, &verdict, &seen, begun)
	}
	if changed {
		l.Changed(verdict.Under)
	}
	if !acts {
		l.rehearse(ctx)
		return verdict.Next
	}
	l.tell(&verdict.Act[0], &seen)
	if spares {
		if l.spare(ctx, verdict.Act[0].Signal) {
			return verdict.Next
		}
		ended = l.end(ctx, &verdict, &seen, begun)
	}
	if ended == nil {
		l.nobody(verdict.Act[0].Signal)
		return verdict.Next
	}
	l.report(ended)
	l.wait(ctx, ended, &verdict.Act[0])
	l.begin() // signs that came meanwhile were answered by the wait
	return time.Now()
}

// rehearse makes a decision once while there is memory, and does nothing to a
// pod. A node without memory reads the code for a decision from a slow disk, page
// by page, and its first decision is late; so Keep has what the rehearsal used
// stay in memory.
func (l *Loop) rehearse(ctx context.Context) {
	if l.rehearsed || ctx.Err() != nil || l.told != 0 {
		return
	}
	i := slices.IndexFunc(l.Thresholds, func(t evictionapi.Threshold) bool { return t.Signal == evictionapi.MemoryAvailable })
	if i < 0 || len(l.Pods(ctx, evictionapi.MemoryAvailable)) == 0 {
		return
	}
	l.rehearsed = true
	decide := func() {
		now := l.Observe(ctx)
		ranked := policy.Rank(l.Pods(ctx, evictionapi.MemoryAvailable), evictionapi.MemoryAvailable, l.Layout)
		if len(ranked) == 0 {
			return
		}
		why := policy.Describe(ranked[0], l.Thresholds[i:i+1], &now, l.MaxGrace)
		if l.DryRun != nil {
			l.DryRun(why)
		}
	}
	if l.Keep == nil {
		decide()
		return
	}
	l.Keep(decide)
}

// acts says whether something is to be done about what the node is short of.
func (l *Loop) acts(ctx context.Context, v *policy.Verdict) bool {
	if ctx.Err() != nil || !v.Short {
		l.told, l.idle = 0, time.Time{}
		return false
	}
	return len(v.Act) > 0 && !l.looked.Before(l.idle)
}

// begin is when the first sign came that this look is for; zero is that none
// did.
func (l *Loop) begin() time.Time {
	if since := l.asked.Swap(0); since > 0 {
		return l.made.Add(time.Duration(since))
	}
	return time.Time{}
}

// tell tells of what the node is short of, once until it is short of something
// else or has enough.
func (l *Loop) tell(t *evictionapi.Threshold, seen *evictionapi.Observations) {
	l.Met(t.Signal)
	level := slog.LevelDebug
	if l.told != t.Signal {
		l.told, level = t.Signal, slog.LevelWarn
	}
	o := seen[t.Signal]
	l.Log.Log(context.Background(), level, "the node runs short", "signal", t.Signal.String(),
		"threshold", t.Value.Of(o.Capacity), "available", o.Available, "capacity", o.Capacity)
}

// victim is a pod that was told to end.
type victim struct {
	policy.Eviction
	pod  *v1.Pod
	gone <-chan struct{}
	took time.Duration // since the first sign; 0 is that there was none
}

// end has the first pod end that can be ended; nil is that none can.
func (l *Loop) end(ctx context.Context, v *policy.Verdict, seen *evictionapi.Observations, begun time.Time) *victim {
	first := v.Act[0].Signal
	for _, p := range policy.Rank(l.Pods(ctx, first), first, l.Layout) {
		ended := &victim{Eviction: policy.Describe(p, v.Act, seen, l.MaxGrace), pod: p.Pod}
		if ended.gone = l.Evict(p.Pod, ended.Eviction); ended.gone == nil {
			continue
		}
		if !begun.IsZero() {
			ended.took = time.Since(begun)
		}
		return ended
	}
	return nil
}

func (l *Loop) report(v *victim) {
	keys := []any{"pod", pod.RefOf(v.pod).String(), "podUID", v.pod.UID, "signal", v.Signal, "grace", v.Grace, "message", v.Message}
	if v.took > 0 {
		keys = append(keys, "sinceSign", v.took)
	}
	l.Log.Warn("a pod is evicted", keys...)
}

// nobody has nothing more done for a while where no pod can be ended: those that
// run are critical, or end already.
func (l *Loop) nobody(s evictionapi.Signal) {
	if l.idle.IsZero() {
		l.Log.Error("the node runs short and no pod can be evicted: all that run are critical, or end already", "signal", s.String())
	}
	l.idle = l.looked.Add(policy.Recheck)
}

// spare gives back what the node itself can, and says whether that is enough.
func (l *Loop) spare(ctx context.Context, s evictionapi.Signal) bool {
	for _, r := range policy.Reclaims(s, l.Layout) {
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

// wait waits until a pod that goes for a threshold is gone or has had its time:
// others would go for what it gives back. A soft threshold lets it have minutes,
// in which a hard one may be met that goes before; then it waits no longer.
func (l *Loop) wait(ctx context.Context, v *victim, t *evictionapi.Threshold) {
	limit := time.NewTimer(v.Grace + overdue)
	defer limit.Stop()
	killed := false
	sign := l.sign
	if t.Hard() {
		sign = nil
	}
	for {
		select {
		case <-v.gone:
			return
		case <-limit.C:
			if killed {
				return
			}
			l.kill(v)
			killed = true
			limit.Reset(untilGone - overdue)
			continue
		case <-ctx.Done():
			return
		case <-sign:
		}
		if !l.rest(ctx) {
			return
		}
		seen := l.Observe(ctx)
		if l.looked = time.Now(); l.tracker.Overtaken(t, &seen) {
			return
		}
	}
}

// kill ends a pod that the runtime has not ended in time.
func (l *Loop) kill(v *victim) {
	err := l.Kill(v.pod)
	keys := []any{"pod", pod.RefOf(v.pod).String(), "podUID", v.pod.UID, "grace", v.Grace, "overdue", overdue}
	if err != nil {
		keys = append(keys, "error", err)
	}
	l.Log.Warn("an evicted pod has not ended in time: it is killed without the runtime", keys...)
}
