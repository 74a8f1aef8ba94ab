package shutdown

import (
	"context"
	"io"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tinylet/tinylet/agent/pod"
)

// drive carries out shutdowns one after the other until ctx ends.
func (m *Manager) drive(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			m.mu.Lock()
			m.over = context.Cause(ctx)
			if m.run != nil {
				m.run.finish(m.over)
			}
			m.mu.Unlock()
			return
		case <-m.started:
		}
		m.mu.Lock()
		r := m.run
		m.mu.Unlock()
		if r == nil { // cancelled already
			continue
		}
		e := ending{Manager: m, of: r, terminated: make(map[types.UID]struct{})}
		if e.all(ctx) {
			m.ended(r)
		}
	}
}

// ended finishes a run and releases the inhibitor lock, so that logind continues.
// If the run was cancelled at the last moment, the lock stays.
func (m *Manager) ended(r *run) {
	m.mu.Lock()
	var lock io.Closer
	if m.run == r {
		r.finish(nil)
		lock, m.lock = m.lock, nil
	}
	m.mu.Unlock()
	m.closeLock(lock)
}

// ending executes one run.
type ending struct {
	*Manager
	of         *run
	terminated map[types.UID]struct{} // the pods that End was called for
}

// all ends one group after the other. It returns false if the run was cancelled or
// ctx ended.
func (e *ending) all(ctx context.Context) bool {
	for i, period := range e.cfg.Periods {
		if !e.group(ctx, i, period) {
			return false
		}
	}
	e.cfg.Log.Info("terminated pods for node shutdown", "count", len(e.terminated))
	return true
}

// group terminates the pods of group i, and pods of earlier groups that have
// appeared since. It lists the pods at its begin and at each State.Notify. It waits for
// them at most as long as the period of the group. It reports whether the next group
// follows.
func (e *ending) group(ctx context.Context, i int, period Period) bool {
	begun := time.Now()
	timer := time.NewTimer(period.Time)
	defer timer.Stop()
	var waiting []*v1.Pod
	for now := begun; ; now = time.Now() {
		if e.stopped(ctx) {
			return false
		}
		left := max(period.Time-now.Sub(begun), 0)
		for _, p := range e.newPods(i) {
			e.terminated[p.UID] = struct{}{}
			waiting = append(waiting, p)
			e.cfg.End(p, Grace(p, left))
		}
		waiting = slices.DeleteFunc(waiting, func(p *v1.Pod) bool { return e.cfg.Ended(p.UID) })
		if len(waiting) == 0 {
			return true
		}
		select {
		case <-ctx.Done():
		case <-e.of.cancelled:
		case <-e.podEnded:
		case <-timer.C:
			for _, p := range waiting {
				e.cfg.Log.Warn("pod exceeded shutdown grace period of its priority",
					"pod", pod.RefOf(p).String(), "podUID", p.UID, "priority", period.Priority, "gracePeriod", period.Time.String())
			}
			return true
		}
	}
}

// stopped reports whether the run was cancelled or ctx has ended.
func (e *ending) stopped(ctx context.Context) bool {
	select {
	case <-ctx.Done():
		return true
	case <-e.of.cancelled:
		return true
	default:
		return false
	}
}

// newPods returns the pods of the groups up to i that have not ended and for which
// End was not called. A pod that was being admitted when the shutdown began appears
// late.
func (e *ending) newPods(i int) (pods []*v1.Pod) {
	for _, p := range e.cfg.Pods() {
		if _, called := e.terminated[p.UID]; !called && indexOf(e.cfg.Periods, p) <= i && !e.cfg.Ended(p.UID) {
			pods = append(pods, p)
		}
	}
	return pods
}
