package podsync

import (
	"context"
	"runtime"
	"sync"
	"time"
)

// turnLimit is how long a pod may occupy a start slot. It is far more than a
// slow board needs: a pod that takes longer does not wait for the CPU.
const turnLimit = 10 * time.Second

// turns limits the number of pods that start at the same time, first come,
// first served. Starting a pod is CPU-bound: if ten pods start in parallel, all
// are late; if they start one after the other, half of them run in half the
// time.
//
// Pulls, volumes and hooks need no start slot.
type turns chan struct{}

// leastTurns is the limit for a node with one processor: starting a pod also
// waits for the disk.
const leastTurns = 2

func newTurns() turns { return make(turns, max(leastTurns, runtime.NumCPU())) }

// turn is the start slot of one pod. Its zero value holds none. It is not safe
// for concurrent use.
type turn struct{ end func() }

// take blocks until the pod has a start slot. It returns at once if the pod has
// one, and fails when ctx ends.
func (t turns) take(ctx context.Context, mine *turn) error {
	if mine.end != nil {
		return nil
	}
	select {
	case t <- struct{}{}:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	var once sync.Once
	end := func() { once.Do(func() { <-t }) }
	limit := time.AfterFunc(turnLimit, end)
	mine.end = func() {
		limit.Stop()
		end()
	}
	return nil
}

// leave releases the start slot, if the pod has one.
func (m *turn) leave() {
	if m.end != nil {
		m.end()
		m.end = nil
	}
}
