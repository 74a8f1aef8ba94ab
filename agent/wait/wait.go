// Package wait owns how the agent waits: pauses that a context ends, backoff with
// jitter, and wakeups. It knows neither pods nor the network.
//
// k8s.io/apimachinery/pkg/util/wait has jitter and backoff too. Its backoff adds
// jitter on top of the limit, ends after a number of steps and has no reset, and it
// has neither a pause nor a wakeup.
package wait

import (
	"context"
	"math/rand/v2"
	"time"
)

// Pause waits for d. It reports whether d has passed, and false as soon as ctx ends.
func Pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

// Longer returns d and up to a tenth more, at random, so that many nodes do not act
// at the same time.
func Longer(d time.Duration) time.Duration { return d + rand.N(d/10+1) }

// Around returns d, at random by up to d/part less or more.
func Around(d time.Duration, part int) time.Duration {
	spread := d / time.Duration(part)
	return d - spread + rand.N(2*spread+1)
}

// Wakeup wakes one waiting goroutine: a channel with one slot. Wakeups that come
// before it is received are one.
type Wakeup chan struct{}

// NewWakeup returns a Wakeup that is not set.
func NewWakeup() Wakeup { return make(Wakeup, 1) }

// Set wakes the receiver, or has its next receive return at once. It does not block.
func (w Wakeup) Set() { Notify(w) }

// Notify fills a slot of somebody else, as Wakeup.Set does.
func Notify(slot chan<- struct{}) {
	select {
	case slot <- struct{}{}:
	default:
	}
}
