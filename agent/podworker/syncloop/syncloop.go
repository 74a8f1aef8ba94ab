// Package syncloop implements the sync loop. It connects updates of the config
// sources, changes and snapshots from the PLEG, and housekeeping. It only
// dispatches; the pod workers do everything that may block.
package syncloop

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tinylet/tinylet/agent/container/pleg"
	"github.com/tinylet/tinylet/agent/pod"
	"github.com/tinylet/tinylet/agent/podworker"
	"github.com/tinylet/tinylet/agent/source"
	"github.com/tinylet/tinylet/agent/wait"
)

// housekeepingPeriod is the interval of housekeeping, which finds what no event
// reports: orphaned data on disk, such as the directory of a pod that the
// runtime lost.
const housekeepingPeriod = 5 * time.Minute

// Config is the configuration of a Loop.
type Config struct {
	// Updates is the merged stream of the sources. MarkSeen is called when an
	// update of a source is dispatched completely, and marks the source as ready.
	Updates  <-chan source.Update
	MarkSeen func(source string)
	// OnStatusReconciled is called with the API server's status of a pod whose spec has
	// not changed and that has no readiness gates. It must not block.
	OnStatusReconciled func(*v1.Pod)
	// Ready reports whether every source is ready. Nothing is cleaned up
	// before.
	Ready func() bool

	// Changes are pods to sync again, Snapshots the pods that the runtime has.
	Changes   <-chan types.UID
	Snapshots <-chan []pleg.Pod

	Workers *podworker.Workers
	// ListOrphans lists the UIDs of pods that have something on disk. It may
	// block on the disk.
	ListOrphans func() ([]types.UID, error)

	Log *slog.Logger
}

// Loop dispatches updates and events to the pod workers.
type Loop struct {
	cfg   Config
	alive chan struct{}
	// steps counts what the loop has dispatched.
	steps atomic.Uint64
	// orphans receives the UIDs of one call of ListOrphans. listing means that a
	// call runs; only one runs at a time.
	orphans chan []types.UID
	listing bool
}

// New returns a loop. It starts nothing.
func New(cfg Config) *Loop {
	return &Loop{cfg: cfg, alive: make(chan struct{}), orphans: make(chan []types.UID, 1)}
}

// Run dispatches until ctx ends. Then it waits for the workers, which leave
// their pods running. It returns the cause of ctx.
func (l *Loop) Run(ctx context.Context) error {
	defer l.cfg.Workers.Wait()
	// At random, to spread the housekeeping of nodes that started at the same time.
	timer := time.NewTimer(wait.Around(housekeepingPeriod, 10))
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
			l.cfg.Workers.AdoptRunning(ctx, pods)
			l.terminateOrphans(ctx)
		case uids := <-l.orphans:
			l.listing = false
			l.removeOrphans(ctx, uids)
		case <-timer.C:
			l.listOrphans()
			timer.Reset(wait.Around(housekeepingPeriod, 10))
		case l.alive <- struct{}{}:
		}
	}
}

// update dispatches one update. If that makes the last source ready, it terminates
// orphaned pods and lists orphaned data.
func (l *Loop) update(ctx context.Context, u source.Update) {
	for _, p := range l.runningFirst(u.Pods) {
		l.steps.Add(1)
		level := slog.LevelInfo
		if u.Op == source.RECONCILE {
			level = slog.LevelDebug
		}
		l.cfg.Log.Log(ctx, level, "pod update", "op", string(u.Op), "pod", pod.RefOf(p).String(), "podUID", p.UID, "source", u.Source)
		switch u.Op {
		case source.RECONCILE:
			// This agent has reported most such changes itself. Only the
			// conditions of readiness gates come from others.
			if len(p.Spec.ReadinessGates) > 0 {
				l.cfg.Workers.UpdatePod(ctx, p)
			} else {
				l.cfg.OnStatusReconciled(p)
			}
		case source.ADD, source.UPDATE, source.DELETE, source.RESTORE:
			l.cfg.Workers.UpdatePod(ctx, p)
		case source.REMOVE:
			l.cfg.Workers.RemovePod(ctx, pod.RefOf(p))
		default:
			l.cfg.Log.Error("drop update with unknown operation", "op", u.Op, "pod", pod.RefOf(p).String())
		}
	}
	// More updates of the same set may follow a REMOVE, with pods that are still orphans here.
	if u.Partial || u.Op == source.REMOVE {
		return
	}
	wasReady := l.cfg.Ready()
	l.cfg.MarkSeen(u.Source)
	if !wasReady && l.cfg.Ready() {
		l.cfg.Log.Info("all pod sources are ready")
		l.terminateOrphans(ctx)
		l.listOrphans()
	}
}

// runningFirst sorts the pods that already ran when they were found before the
// others: they keep their place on the node, and the others get the rest.
func (l *Loop) runningFirst(pods []*v1.Pod) []*v1.Pod {
	var running, others []*v1.Pod
	for _, p := range pods {
		if l.cfg.Workers.IsAdopted(p.UID) {
			running = append(running, p)
		} else {
			others = append(others, p)
		}
	}
	return append(running, others...)
}

// terminateOrphans terminates the pods of the runtime that no source has. It does
// nothing until all sources are ready.
func (l *Loop) terminateOrphans(ctx context.Context) {
	if !l.cfg.Ready() {
		return
	}
	for _, ref := range l.cfg.Workers.AdoptedPods() {
		l.cfg.Log.Info("terminate orphaned pod", "pod", ref.String(), "podUID", ref.UID)
		l.cfg.Workers.RemovePod(ctx, ref)
	}
}

// listOrphans lists orphaned data on disk in a separate goroutine, so that
// the loop never waits for a disk. The result of a listing that hangs is
// processed when it arrives.
func (l *Loop) listOrphans() {
	if l.listing || !l.cfg.Ready() || !l.cfg.Workers.RuntimeKnown() {
		return
	}
	l.listing = true
	go func() {
		uids, err := l.cfg.ListOrphans()
		if err != nil {
			l.cfg.Log.Warn("cannot list orphaned pod data", "error", err)
		}
		l.orphans <- uids
	}()
}

// removeOrphans removes the data on disk of pods without a worker. A pod that
// came since the listing has a worker by now.
func (l *Loop) removeOrphans(ctx context.Context, uids []types.UID) {
	for _, uid := range uids {
		if _, known := l.cfg.Workers.State(uid); !known {
			l.cfg.Log.Info("remove orphaned pod data", "podUID", uid)
			l.cfg.Workers.RemovePod(ctx, pod.Ref{UID: uid})
		}
	}
}

// Alive returns nil as soon as the loop makes progress, and an error if it has
// dispatched nothing until ctx ends. Without a call of Alive the loop does no
// work for it.
func (l *Loop) Alive(ctx context.Context) error {
	before := l.steps.Load()
	select {
	case <-l.alive:
		return nil
	case <-ctx.Done():
	}
	if l.steps.Load() != before {
		return nil // the loop is busy
	}
	return fmt.Errorf("sync loop makes no progress: %w", context.Cause(ctx))
}
