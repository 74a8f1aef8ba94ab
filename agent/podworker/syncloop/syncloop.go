// Package syncloop owns the one loop that connects everything: updates of
// the pod sources, changes and snapshots from the PLEG, and housekeeping. It
// only dispatches; whatever may block is done by the pod workers.
package syncloop

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tinylet/tinylet/agent/container/pleg"
	"github.com/tinylet/tinylet/agent/pod"
	"github.com/tinylet/tinylet/agent/podworker"
	"github.com/tinylet/tinylet/agent/source"
)

// housekeepingPeriod is the slow net below the events: what is left on disk
// without any event, such as a folder whose pod the runtime lost.
const housekeepingPeriod = 5 * time.Minute

// Config is what the loop connects.
type Config struct {
	// Updates is the merged stream of the sources. Seen tells their mux that
	// an update arrived here, which makes its source ready.
	Updates <-chan source.Update
	Seen    func(source string)
	// Reconciled is told of the API server's status of a pod that is wanted as
	// it was and has no readiness gates. It must not block, and may be nil.
	Reconciled func(*v1.Pod)
	// Ready says whether every source is: nothing is cleaned up before.
	Ready func() bool

	// Changes are pods to look at again, Snapshots what the runtime holds.
	Changes   <-chan types.UID
	Snapshots <-chan []pleg.Pod

	Workers *podworker.Set
	// Leftovers lists the UIDs of pods that have something on disk. It may
	// block on the disk, and be nil.
	Leftovers func() ([]types.UID, error)

	Log *slog.Logger
}

// Loop dispatches until its context ends.
type Loop struct {
	cfg   Config
	alive chan struct{}
	// steps counts what the loop has dispatched.
	steps atomic.Uint64
	// listed has the UIDs that one call of Leftovers has found. Only one goes
	// on at a time.
	listed  chan []types.UID
	listing bool
}

// New makes a loop; nothing is started.
func New(cfg Config) *Loop {
	return &Loop{cfg: cfg, alive: make(chan struct{}), listed: make(chan []types.UID, 1)}
}

// Run dispatches until ctx ends; then it waits for the workers, which leave
// their pods as they are. Its error is that of ctx.
func (l *Loop) Run(ctx context.Context) error {
	defer l.cfg.Workers.Wait()
	timer := time.NewTimer(jitter(housekeepingPeriod))
	defer timer.Stop()
	for {
		l.steps.Add(1)
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case u := <-l.cfg.Updates:
			l.update(ctx, u)
		case uid := <-l.cfg.Changes:
			l.cfg.Workers.Wake(uid)
		case pods := <-l.cfg.Snapshots:
			l.adopt(ctx, pods)
		case uids := <-l.listed:
			l.listing = false
			l.removeLeftovers(ctx, uids)
		case <-timer.C:
			l.findLeftovers()
			timer.Reset(jitter(housekeepingPeriod))
		case l.alive <- struct{}{}:
		}
	}
}

// update dispatches one update, and then what it may have made ready.
func (l *Loop) update(ctx context.Context, u source.Update) {
	for _, p := range l.runningFirst(u.Pods) {
		l.steps.Add(1)
		level := slog.LevelInfo
		if u.Op == source.RECONCILE {
			level = slog.LevelDebug
		}
		l.cfg.Log.Log(ctx, level, "pod update", "op", u.Op.String(), "pod", pod.RefOf(p).String(), "podUID", p.UID, "source", u.Source)
		switch u.Op {
		case source.RECONCILE:
			// Most such changes are what this agent has reported itself. Only
			// the conditions that readiness gates wait for are others'.
			if len(p.Spec.ReadinessGates) > 0 {
				l.cfg.Workers.Submit(ctx, p)
			} else if l.cfg.Reconciled != nil {
				l.cfg.Reconciled(p)
			}
		case source.ADD, source.UPDATE, source.DELETE, source.RESTORE:
			l.cfg.Workers.Submit(ctx, p)
		case source.REMOVE:
			l.cfg.Workers.Remove(ctx, pod.RefOf(p))
		default:
			l.cfg.Log.Error("update with an unknown operation is dropped", "op", u.Op, "pod", pod.RefOf(p).String())
		}
	}
	if u.Partial {
		return
	}
	wasReady := l.cfg.Ready()
	l.cfg.Seen(u.Source)
	if !wasReady && l.cfg.Ready() {
		l.cfg.Log.Info("all pod sources are ready")
		l.removeUnclaimed(ctx)
		l.findLeftovers()
	}
}

// runningFirst puts the pods that the runtime held already before the others:
// what runs has its place on the node, and the others get what is left.
func (l *Loop) runningFirst(pods []*v1.Pod) []*v1.Pod {
	if len(pods) < 2 {
		return pods
	}
	rank := func(p *v1.Pod) int {
		if l.cfg.Workers.Adopted(p.UID) {
			return 0
		}
		return 1
	}
	sorted := slices.Clone(pods)
	slices.SortStableFunc(sorted, func(a, b *v1.Pod) int { return rank(a) - rank(b) })
	return sorted
}

// adopt hands what the runtime holds to the workers.
func (l *Loop) adopt(ctx context.Context, pods []pleg.Pod) {
	found := make([]podworker.Found, len(pods))
	for i, p := range pods {
		found[i] = podworker.Found{Ref: p.Ref, Grace: p.Grace, Running: p.Running}
	}
	l.cfg.Workers.Adopt(ctx, found)
	l.removeUnclaimed(ctx)
}

// removeUnclaimed terminates what runs and no source wants.
func (l *Loop) removeUnclaimed(ctx context.Context) {
	if !l.cfg.Ready() {
		return
	}
	for _, ref := range l.cfg.Workers.Unclaimed() {
		l.cfg.Log.Info("pod runs and no source wants it, terminating", "pod", ref.String(), "podUID", ref.UID)
		l.cfg.Workers.Remove(ctx, ref)
	}
}

// findLeftovers lists what is left on disk in a goroutine of its own: the loop
// waits for no disk. One that hangs has its listing taken when it answers.
func (l *Loop) findLeftovers() {
	if l.cfg.Leftovers == nil || l.listing || !l.cfg.Ready() || !l.cfg.Workers.RuntimeKnown() {
		return
	}
	l.listing = true
	go func() {
		uids, err := l.cfg.Leftovers()
		if err != nil {
			l.cfg.Log.Warn("housekeeping could not list what pods left on disk", "error", err)
		}
		l.listed <- uids
	}()
}

// removeLeftovers clears what pods without a worker have left on disk. One that
// came since the listing has a worker by now.
func (l *Loop) removeLeftovers(ctx context.Context, uids []types.UID) {
	known := l.cfg.Workers.Known()
	for _, uid := range uids {
		if _, ok := known[uid]; !ok {
			l.cfg.Log.Info("nobody knows the pod that left this on disk, removing", "podUID", uid)
			l.cfg.Workers.Remove(ctx, pod.Ref{UID: uid})
		}
	}
}

// errStuck is the fault that healthz reports.
var errStuck = errors.New("sync loop does not take its turn")

// Alive waits until the loop takes a turn, or fails if it has dispatched
// nothing until ctx ends. The loop does no work for it while nobody asks.
func (l *Loop) Alive(ctx context.Context) error {
	before := l.steps.Load()
	select {
	case <-l.alive:
		return nil
	case <-ctx.Done():
	}
	if l.steps.Load() != before {
		return nil // it is busy
	}
	return fmt.Errorf("%w: %w", errStuck, context.Cause(ctx))
}

// jitter spreads housekeeping of boards that started together.
func jitter(d time.Duration) time.Duration { return d - d/10 + rand.N(d/5) }
