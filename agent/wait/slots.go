package wait

import (
	"context"
	"sync"
	"time"
)

// Slots limits concurrency, first come, first served: a channel whose capacity is the
// number of slots.
type Slots chan struct{}

// Acquire waits for a slot, or returns the cause of ctx when ctx ends. The slot is free
// again when release is called, or after most if that is earlier: a holder that takes
// longer continues without a slot and does not block others. Further calls of release do
// nothing.
func (s Slots) Acquire(ctx context.Context, most time.Duration) (release func(), err error) {
	select {
	case s <- struct{}{}:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	free := sync.OnceFunc(func() { <-s })
	timer := time.AfterFunc(most, free)
	return func() {
		timer.Stop()
		free()
	}, nil
}
