package eviction

import (
	"context"
	"log/slog"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/tinylet/tinylet/agent/config/evictionapi"
	"github.com/tinylet/tinylet/agent/pod"
	"github.com/tinylet/tinylet/agent/pod/event"
	"github.com/tinylet/tinylet/agent/resource/eviction/policy"
	"github.com/tinylet/tinylet/agent/wait"
)

// podCleanupTimeout bounds the wait for an evicted pod after its grace period. It equals
// upstream's podCleanupTimeout (pkg/kubelet/eviction/eviction_manager.go).
const podCleanupTimeout = 30 * time.Second

// killDelay is how long a pod may exceed its grace period before it is killed without
// the runtime. The runtime needs memory itself and may stall on it longer than other
// pods survive. killDelay exceeds the 2 s of the grace period that remain after any
// preStop hook.
const killDelay = 5 * time.Second

// minInterval is the minimum interval between two checks. It is well below 1 s, the bound
// within which a notification of the kernel must lead to a decision.
const minInterval = 200 * time.Millisecond

// podsDelay is how long after a change of a pod's status a check follows. The start of a
// pod changes its status a dozen times within a second or two, and a check takes a good
// part of the CPU that this start needs. Memory and process IDs do not depend on it: the
// kernel notifies of them.
const podsDelay = time.Second

// loop is the eviction loop. The methods of Status are safe for concurrent use, the others
// are for the goroutine of run.
type loop struct {
	*Manager
	// thresholds are those that apply to the layout.
	thresholds []evictionapi.Threshold
	layout     policy.Layout
	// observe measures the signals of the thresholds. A signal that could not be
	// measured is not Known.
	observe func() evictionapi.Observations
	// evictable is Manager.candidates. Tests replace it.
	evictable func(context.Context, evictionapi.Signal) []policy.Pod
	tracker   *policy.Tracker
	// podsChanged is set when the status of any pod changes.
	podsChanged wait.Wakeup

	// The fields below belong to run.
	lastCheck      time.Time
	reportedSignal evictionapi.Signal // signal of the last reported threshold
	// idleUntil is the time until which no action is taken because none is possible.
	idleUntil time.Time
	rehearsed bool
}

// newLoop returns a loop for run. It observes nothing yet.
func newLoop(m *Manager, thresholds []evictionapi.Threshold, layout policy.Layout, observe func() evictionapi.Observations) *loop {
	return &loop{
		Manager: m, thresholds: thresholds, layout: layout, observe: observe, evictable: m.candidates,
		tracker: policy.NewTracker(thresholds, m.Transition), podsChanged: wait.NewWakeup(),
	}
}

// run checks once at the start, then at each trigger, podsDelay after a change of pods,
// and when a grace period or a condition expires. It returns the cause of ctx when ctx
// ends.
func (l *loop) run(ctx context.Context) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	select {
	case <-l.trigger: // the first check handles it
	default:
	}
	l.takeTriggerTime()
	for l.await(ctx, timer.C) {
		if next := l.synchronize(ctx); next.IsZero() {
			timer.Stop()
		} else {
			timer.Reset(time.Until(next))
		}
	}
	return context.Cause(ctx)
}

// await waits until the next check is due, at the latest when expired receives. It returns
// false if ctx ended.
func (l *loop) await(ctx context.Context, expired <-chan time.Time) bool {
	changed := l.podsChanged
	var delayed <-chan time.Time
	for {
		select {
		case <-ctx.Done():
			return false
		case <-l.trigger:
			return l.throttle(ctx)
		case <-changed:
			delay := time.NewTimer(podsDelay)
			defer delay.Stop()
			changed, delayed = nil, delay.C
		case <-delayed:
			select {
			case <-l.podsChanged: // this check handles it
			default:
			}
			return true
		case <-expired:
			return true
		}
	}
}

// throttle waits until minInterval has passed since the last check. It returns false if ctx
// ended.
func (l *loop) throttle(ctx context.Context) bool {
	left := minInterval - time.Since(l.lastCheck)
	return left <= 0 || wait.Pause(ctx, left)
}

// synchronize performs one check. It returns when the next one is due without a trigger;
// zero means never. If no node-level resource can be reclaimed, a pod is evicted
// before anything is logged or reported: without memory, a log line takes a good part
// of a second, because pages of the program must be read back from disk.
func (l *loop) synchronize(ctx context.Context) (next time.Time) {
	begun := l.takeTriggerTime()
	seen := l.observe()
	l.lastCheck = time.Now()
	verdict := l.tracker.Step(&seen, l.lastCheck)
	changed := verdict.Conditions != l.Conditions()
	if changed {
		l.conditions.Store(&verdict.Conditions)
	}
	acts := l.mustAct(ctx, &verdict)
	spares := acts && len(policy.Reclaims(verdict.Thresholds[0].Signal, l.layout)) > 0
	var ended *victim
	if acts && !spares {
		ended = l.evictFirst(ctx, &verdict, &seen, begun)
	}
	if changed {
		l.conditionsChanged(verdict.Conditions)
	}
	if !acts {
		if !verdict.ThresholdMet {
			l.rehearse(ctx)
		}
		return verdict.Next
	}
	l.reportThreshold(&verdict.Thresholds[0], &seen)
	if spares {
		if l.reclaimNode(ctx, verdict.Thresholds[0].Signal) {
			return verdict.Next
		}
		ended = l.evictFirst(ctx, &verdict, &seen, begun)
	}
	if ended == nil {
		l.backOff(verdict.Thresholds[0].Signal)
		return verdict.Next
	}
	l.logEviction(ended)
	l.waitForTermination(ctx, ended, &verdict.Thresholds[0])
	l.takeTriggerTime() // the wait has handled the triggers received meanwhile
	return time.Now()
}

// rehearse runs a check that evicts a pod, without an effect on any pod, after the first check
// at which no threshold is met and a pod runs. Without memory, the node would read the code
// of that check from a slow disk, page by page, and the first decision would be late.
// ProtectPages protects the pages that the rehearsal used. Without it, nothing is rehearsed.
func (l *loop) rehearse(ctx context.Context) {
	if l.ProtectPages == nil || l.rehearsed || ctx.Err() != nil {
		return
	}
	i := slices.IndexFunc(l.thresholds, func(t evictionapi.Threshold) bool { return t.Signal == evictionapi.MemoryAvailable })
	if i < 0 || len(l.evictable(ctx, evictionapi.MemoryAvailable)) == 0 {
		return
	}
	l.rehearsed = true
	threshold := l.thresholds[i]
	threshold.Grace = 0
	l.ProtectPages(func() { l.newRehearsal(threshold).synchronize(ctx) })
}

// newRehearsal returns a loop whose check finds a threshold of memory met, and that has no
// effect on pods, conditions, events and the log.
func (l *loop) newRehearsal(threshold evictionapi.Threshold) *loop {
	config := l.Config
	config.Status, config.Pods, config.OnConditionsChanged = NewStatus(), rehearsedPods{l.Pods}, nil
	config.Log = slog.New(slog.DiscardHandler)
	config.Events = event.NewRecorder(config.Log)
	r := newLoop(New(config), []evictionapi.Threshold{threshold}, l.layout, func() evictionapi.Observations {
		seen := l.observe()
		o := &seen[threshold.Signal]
		o.Available, o.Known = threshold.Value.ForCapacity(o.Capacity)-1024, true // 0 would be formatted without a suffix
		return seen
	})
	r.evictable, r.rehearsed = l.evictable, true
	r.Trigger()
	return r
}

// rehearsedPods are the pods of a rehearsal.
type rehearsedPods struct{ Pods }

func (r rehearsedPods) Evict(_ *v1.Pod, why policy.Eviction) <-chan struct{} {
	r.Rehearse(why)
	terminated := make(chan struct{})
	close(terminated)
	return terminated
}

// mustAct reports whether a threshold must be acted on now.
func (l *loop) mustAct(ctx context.Context, v *policy.Decision) bool {
	if ctx.Err() != nil || !v.ThresholdMet {
		l.reportedSignal, l.idleUntil = 0, time.Time{}
		return false
	}
	return len(v.Thresholds) > 0 && !l.lastCheck.Before(l.idleUntil)
}

// reportThreshold reports the threshold that is acted on. It logs a warning, and not again
// until another signal's threshold is acted on or no threshold is met.
func (l *loop) reportThreshold(t *evictionapi.Threshold, seen *evictionapi.Observations) {
	l.Events.Warning(pod.Ref{}, policy.ReasonThresholdMet, policy.MessageThresholdMet+string(t.Signal.Resource()))
	level := slog.LevelDebug
	if l.reportedSignal != t.Signal {
		l.reportedSignal, level = t.Signal, slog.LevelWarn
	}
	o := seen[t.Signal]
	l.Log.Log(context.Background(), level, "eviction threshold met", "signal", t.Signal.String(),
		"threshold", t.Value.ForCapacity(o.Capacity), "available", o.Available, "capacity", o.Capacity)
}

// victim is a pod that is being evicted.
type victim struct {
	policy.Eviction
	pod        *v1.Pod
	terminated <-chan struct{}
	latency    time.Duration // since the first trigger; 0 means that there was none
}

// evictFirst evicts the first pod of the ranking that can be evicted. It returns nil if
// there is none.
func (l *loop) evictFirst(ctx context.Context, v *policy.Decision, seen *evictionapi.Observations, begun time.Time) *victim {
	first := v.Thresholds[0].Signal
	for _, p := range policy.Rank(l.evictable(ctx, first), first, l.layout) {
		ended := &victim{Eviction: policy.Describe(p, v.Thresholds, seen, l.MaxGrace), pod: p.Pod}
		if ended.terminated = l.Pods.Evict(p.Pod, ended.Eviction); ended.terminated == nil {
			continue
		}
		if !begun.IsZero() {
			ended.latency = time.Since(begun)
		}
		return ended
	}
	return nil
}

func (l *loop) logEviction(v *victim) {
	keys := []any{"pod", pod.RefOf(v.pod).String(), "podUID", v.pod.UID, "signal", v.Signal, "grace", v.Grace, "message", v.Message}
	if v.latency > 0 {
		keys = append(keys, "sinceTrigger", v.latency)
	}
	l.Log.Warn("evicted pod", keys...)
}

// backOff suspends action until policy.Recheck has passed, because no pod can be
// evicted: all running pods are critical or terminating.
func (l *loop) backOff(s evictionapi.Signal) {
	if l.idleUntil.IsZero() {
		l.Log.Error("no pod can be evicted", "signal", s.String(), "reason", "all running pods are critical or terminating")
	}
	l.idleUntil = l.lastCheck.Add(policy.Recheck)
}

// reclaimNode reclaims node-level resources, and reports whether this was sufficient.
func (l *loop) reclaimNode(ctx context.Context, s evictionapi.Signal) bool {
	for _, r := range policy.Reclaims(s, l.layout) {
		if err := l.Reclaim(ctx, r); err != nil && ctx.Err() == nil {
			l.Log.Warn("cannot reclaim node-level resources", "resources", r.String(), "signal", s.String(), "error", err)
		}
	}
	seen := l.observe()
	if !l.tracker.ReclaimSufficed(&seen) {
		return false
	}
	l.Log.Info("reclaimed enough node-level resources", "signal", s.String(), "available", seen[s].Available)
	return true
}

// waitForTermination waits until the pod evicted for a threshold is terminated or overdue;
// otherwise more pods would be evicted for resources that it is about to release. It kills the
// pod killDelay after the grace period. A soft threshold may allow the pod minutes. Then each
// trigger causes a check, and waitForTermination returns early if a hard threshold with
// precedence is met. Node conditions are not updated meanwhile.
func (l *loop) waitForTermination(ctx context.Context, v *victim, t *evictionapi.Threshold) {
	limit := time.NewTimer(v.Grace + killDelay)
	defer limit.Stop()
	killed := false
	sign, changed := l.trigger, l.podsChanged
	if t.Hard() {
		sign, changed = nil, nil
	}
	for {
		select {
		case <-v.terminated:
			return
		case <-limit.C:
			if killed {
				return
			}
			l.kill(v)
			killed = true
			limit.Reset(podCleanupTimeout - killDelay)
			continue
		case <-ctx.Done():
			return
		case <-sign:
		case <-changed:
		}
		if !l.throttle(ctx) {
			return
		}
		seen := l.observe()
		if l.lastCheck = time.Now(); l.tracker.Preceded(t, &seen) {
			return
		}
	}
}

// kill kills a pod that the runtime did not terminate in time.
func (l *loop) kill(v *victim) {
	err := l.Pods.Kill(v.pod)
	keys := []any{"pod", pod.RefOf(v.pod).String(), "podUID", v.pod.UID, "grace", v.Grace, "overdue", killDelay}
	if err != nil {
		keys = append(keys, "error", err)
	}
	l.Log.Warn("kill overdue pod without the runtime", keys...)
}
