package podsync

import (
	"context"
	"runtime"
	"sync"
	"time"
)

// turnLimit is how long a pod may keep others from starting: far more than a
// slow board needs. Who takes longer waits for something else than the CPU.
const turnLimit = 10 * time.Second

// turns lets few pods start at a time, in the order in which they come, first
// come first served. To start a pod is work for the CPU: ten that share it all
// run late, and of ten that follow each other half run in half the time.
//
// What is not that work, such as pulls, volumes and hooks, needs no turn.
type turns chan struct{}

// leastTurns are those of a board with one processor: starting a pod waits for
// the disk, too.
const leastTurns = 2

func newTurns() turns { return make(turns, max(leastTurns, runtime.NumCPU())) }

// turn is one pod's. Its zero value is none; it is not safe for concurrent
// use.
type turn struct{ end func() }

// take waits for a turn unless the pod has it, and fails when ctx ends.
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

// leave gives the turn to the next, if there is one to give.
func (m *turn) leave() {
	if m.end != nil {
		m.end()
		m.end = nil
	}
}
