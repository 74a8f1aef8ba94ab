// Package eviction runs the eviction loop of the node. When a trigger arrives, the
// loop observes the eviction signals, decides with agent/resource/eviction/policy,
// reclaims node-level resources, and then evicts one pod after another until no
// threshold is met.
//
// The package also evicts pods that exceed their limits on local storage (Limits).
//
// The loop has no period. While no threshold is met it sleeps until a trigger: the
// kernel notifies of memory pressure (PSI, memory.events). It does not notify of low
// disks and process IDs, so other periodic tasks of the agent trigger the loop when
// they run anyway.
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

// untilGone bounds the wait for an evicted pod after its grace period. It equals
// upstream's podCleanupTimeout (pkg/kubelet/eviction/eviction_manager.go).
const untilGone = 30 * time.Second

// overdue is how long a pod may exceed its grace period before it is killed without
// the runtime. The runtime needs memory itself and may stall on it longer than other
// pods survive. overdue exceeds the 2 s of the grace period that remain after any
// preStop hook.
const overdue = 5 * time.Second

// pace is the minimum interval between two checks. Starting a pod changes its status
// a dozen times, and each change is a trigger. pace is well below 1 s, the bound
// within which a notification of the kernel must lead to a decision.
const pace = 200 * time.Millisecond

// Config configures a Loop. Run calls its functions, one at a time.
type Config struct {
	// Thresholds are those that Layout.Thresholds returns for Layout.
	Thresholds []evictionapi.Threshold
	Layout     policy.Layout
	// Transition is how long a node condition remains after its thresholds were last
	// met. MaxGrace is the longest grace period for a soft threshold.
	Transition, MaxGrace time.Duration

	// Observe measures the signals of the thresholds. A signal that could not be
	// measured is not Known.
	Observe func(context.Context) evictionapi.Observations
	// Pods returns the pods with running processes, including terminating ones, with
	// the stats that ranking by the signal needs.
	Pods func(context.Context, evictionapi.Signal) []policy.Pod
	// Reclaim reclaims a node-level resource.
	Reclaim func(context.Context, policy.Reclaim) error
	// Evict terminates the pod, or shortens its termination, and reports the eviction
	// in its status and as an event. gone is closed when no process of the pod runs
	// any more. gone is nil if the pod was evicted before or is not known.
	Evict func(*v1.Pod, policy.Eviction) (gone <-chan struct{})
	// Kill kills the processes of a pod at once, without the runtime.
	Kill func(*v1.Pod) error
	// DryRun does what Evict and Kill do, for a pod that does not exist. Keep calls
	// rehearse once and protects the code pages that it used from reclaim. Both may
	// be nil.
	DryRun func(policy.Eviction)
	Keep   func(rehearse func())
	// Changed is called with the node conditions when they change. Met is called with
	// the signal whose threshold is acted on.
	Changed func(evictionapi.Conditions)
	Met     func(evictionapi.Signal)

	Log *slog.Logger
}

// Loop is the eviction loop. Its methods are safe for concurrent use.
type Loop struct {
	Config
	tracker *policy.Tracker
	sign    chan struct{}
	under   atomic.Pointer[evictionapi.Conditions]
	made    time.Time
	asked   atomic.Int64 // time of the first unhandled Look, since made; 0 means none

	// The fields below belong to Run.
	looked time.Time
	told   evictionapi.Signal // signal of the last reported threshold
	// idle is the time until which no action is taken because none is possible.
	idle      time.Time
	rehearsed bool
}

// New returns a Loop for Run. It observes nothing yet.
func New(c Config) *Loop {
	l := &Loop{Config: c, tracker: policy.NewTracker(c.Thresholds, c.Transition), sign: make(chan struct{}, 1), made: time.Now()}
	l.under.Store(&evictionapi.Conditions{})
	return l
}

// Look triggers a check. All triggers before the check are handled by it. Look does
// not block.
func (l *Loop) Look() {
	l.asked.CompareAndSwap(0, int64(max(time.Since(l.made), 1)))
	select {
	case l.sign <- struct{}{}:
	default:
	}
}

// Sign returns a one-slot channel. Sending on it triggers a check, as Look does.
func (l *Loop) Sign() chan<- struct{} { return l.sign }

// Under returns the current node conditions, for pod admission.
func (l *Loop) Under() evictionapi.Conditions { return *l.under.Load() }

// Run checks once at the start, then at each trigger and when a grace period or a
// condition expires. It returns the cause of ctx when ctx ends.
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

// rest waits until pace has passed since the last check. It returns false if ctx
// ended.
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

// look performs one check. It returns when the next one is due without a trigger;
// zero means never. If no node-level resource can be reclaimed, a pod is evicted
// before anything is logged or reported: without memory, a log line takes a good part
// of a second, because pages of the program must be read back from disk.
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
	l.begin() // the wait has handled the triggers received meanwhile
	return time.Now()
}

// rehearse runs the decision path once while memory is available, without an effect
// on any pod. Without memory, the node would read the code of that path from a slow
// disk, page by page, and the first decision would be late. Keep protects the pages
// that the rehearsal used.
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

// acts reports whether a threshold must be acted on now.
func (l *Loop) acts(ctx context.Context, v *policy.Verdict) bool {
	if ctx.Err() != nil || !v.Short {
		l.told, l.idle = 0, time.Time{}
		return false
	}
	return len(v.Act) > 0 && !l.looked.Before(l.idle)
}

// begin returns the time of the first trigger since the last check, and resets it.
// Zero means that there was none.
func (l *Loop) begin() time.Time {
	if since := l.asked.Swap(0); since > 0 {
		return l.made.Add(time.Duration(since))
	}
	return time.Time{}
}

// tell reports the threshold that is acted on. It logs a warning once until another
// signal's threshold is acted on or no threshold is met.
func (l *Loop) tell(t *evictionapi.Threshold, seen *evictionapi.Observations) {
	l.Met(t.Signal)
	level := slog.LevelDebug
	if l.told != t.Signal {
		l.told, level = t.Signal, slog.LevelWarn
	}
	o := seen[t.Signal]
	l.Log.Log(context.Background(), level, "eviction threshold met", "signal", t.Signal.String(),
		"threshold", t.Value.Of(o.Capacity), "available", o.Available, "capacity", o.Capacity)
}

// victim is a pod that is being evicted.
type victim struct {
	policy.Eviction
	pod  *v1.Pod
	gone <-chan struct{}
	took time.Duration // since the first trigger; 0 means that there was none
}

// end evicts the first pod of the ranking that can be evicted. It returns nil if
// there is none.
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
		keys = append(keys, "sinceTrigger", v.took)
	}
	l.Log.Warn("evicted pod", keys...)
}

// nobody suspends action until policy.Recheck has passed, because no pod can be
// evicted: all running pods are critical or terminating.
func (l *Loop) nobody(s evictionapi.Signal) {
	if l.idle.IsZero() {
		l.Log.Error("no pod can be evicted", "signal", s.String(), "reason", "all running pods are critical or terminating")
	}
	l.idle = l.looked.Add(policy.Recheck)
}

// spare reclaims node-level resources, and reports whether this was sufficient.
func (l *Loop) spare(ctx context.Context, s evictionapi.Signal) bool {
	for _, r := range policy.Reclaims(s, l.Layout) {
		if err := l.Reclaim(ctx, r); err != nil && ctx.Err() == nil {
			l.Log.Warn("cannot reclaim node-level resources", "resources", r.String(), "signal", s.String(), "error", err)
		}
	}
	seen := l.Observe(ctx)
	if !l.tracker.Reclaimed(&seen) {
		return false
	}
	l.Log.Info("reclaimed enough node-level resources", "signal", s.String(), "available", seen[s].Available)
	return true
}

// wait waits until the pod evicted for a threshold is gone or overdue; otherwise more
// pods would be evicted for resources that it is about to release. A soft threshold
// may allow the pod minutes. wait then returns early if a hard threshold with
// precedence is met.
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

// kill kills a pod that the runtime did not terminate in time.
func (l *Loop) kill(v *victim) {
	err := l.Kill(v.pod)
	keys := []any{"pod", pod.RefOf(v.pod).String(), "podUID", v.pod.UID, "grace", v.Grace, "overdue", overdue}
	if err != nil {
		keys = append(keys, "error", err)
	}
	l.Log.Warn("kill overdue pod without the runtime", keys...)
}
