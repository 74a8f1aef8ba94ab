// Package wait has the agent's ways to wait: pauses that a context ends, backoff with
// jitter, wakeups, slots, and watches that are restarted.
//
// Jitter and the steps of a backoff are those of k8s.io/apimachinery/pkg/util/wait.
package wait

import (
	"context"
	"math/rand/v2"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
)

// Pause waits for d. It reports whether d has passed, and false as soon as ctx ends.
func Pause(ctx context.Context, d time.Duration) bool {
	return Wakeup(nil).Wait(ctx, d) // a nil channel is never ready
}

// Longer returns d plus up to a tenth of d, at random, so that many nodes do not act at
// the same time.
func Longer(d time.Duration) time.Duration { return wait.Jitter(d, 0.1) }

// Around returns a random duration between d-d/part and d+d/part.
func Around(d time.Duration, part int) time.Duration {
	spread := d / time.Duration(part)
	return d - spread + rand.N(2*spread+1)
}

// Wakeup wakes one waiting goroutine: a channel with a buffer of one. Several calls of
// Set before a receive count once.
type Wakeup chan struct{}

// NewWakeup returns a Wakeup that is not set.
func NewWakeup() Wakeup { return make(Wakeup, 1) }

// Set wakes the receiver, or makes its next receive return at once. It does not block.
func (w Wakeup) Set() { Notify(w) }

// Wait waits until the Wakeup is set or d has passed. It returns false if ctx ends first.
func (w Wakeup) Wait(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-w:
	case <-timer.C:
	}
	return true
}

// Notify sends to slot unless that would block. slot must have a buffer.
func Notify(slot chan<- struct{}) {
	select {
	case slot <- struct{}{}:
	default:
	}
}
