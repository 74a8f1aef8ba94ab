package handler

import (
	"context"
	"sync"
	"time"
)

const (
	// maxCommands is how many commands of probes start at a time. Each takes a
	// process, and as much of the runtime's memory as it prints.
	maxCommands = 4
	// maxHeld is how long a command holds its place. One that takes longer
	// goes on without: slow commands delay the others and never stop them.
	maxHeld = 2 * time.Second
)

// gate admits commands in the order of their arrival.
type gate chan struct{}

func newGate() gate { return make(gate, maxCommands) }

// enter waits for a place. leave gives it back, at the latest after maxHeld; it
// is to be called once the command has ended.
func (g gate) enter(ctx context.Context) (leave func(), err error) {
	select {
	case g <- struct{}{}:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	free := sync.OnceFunc(func() { <-g })
	timer := time.AfterFunc(maxHeld, free)
	return func() {
		timer.Stop()
		free()
	}, nil
}
