package handler

import (
	"context"
	"sync"
	"time"
)

const (
	// maxCommands is the maximum number of concurrent commands of probes. Each
	// needs a process, and memory of the runtime for its output.
	maxCommands = 4
	// maxSlotTime is the maximum time for which a command holds its slot. A command
	// that takes longer continues without a slot, so that slow commands delay
	// the others but never block them.
	maxSlotTime = 2 * time.Second
)

// execLimiter limits the concurrency of commands. Commands enter in the order of their
// arrival.
type execLimiter chan struct{}

func newExecLimiter() execLimiter { return make(execLimiter, maxCommands) }

// acquire waits for a slot, or returns the cause of ctx when ctx ends. The caller
// must call leave when the command has ended. The slot is released then, or after
// maxHeld if that is earlier.
func (g execLimiter) acquire(ctx context.Context) (leave func(), err error) {
	select {
	case g <- struct{}{}:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	free := sync.OnceFunc(func() { <-g })
	timer := time.AfterFunc(maxSlotTime, free)
	return func() {
		timer.Stop()
		free()
	}, nil
}
