package wait

import (
	"cmp"
	"context"
	"math"
	"math/rand/v2"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
)

// Backoff computes the waits between attempts. The limit of the wait doubles each
// time up to Max. The wait is random between half of the limit and the limit, so that
// many nodes do not retry at the same time. It is not safe for concurrent use.
type Backoff struct {
	// First is the upper bound of the first wait, Max that of the longest; 0 means
	// 1 s and 30 s. They are read by the first Next, and by the first one after Reset:
	// a change between has no effect.
	First, Max time.Duration

	state wait.Backoff
}

// Next returns the wait before the next attempt.
func (b *Backoff) Next() time.Duration {
	if b.state.Duration == 0 {
		// The library adds jitter of up to the wait itself; First and Max include it.
		most := cmp.Or(b.Max, 30*time.Second) / 2
		b.state = wait.Backoff{Duration: min(cmp.Or(b.First, time.Second)/2, most), Cap: most, Factor: 2, Jitter: 1, Steps: math.MaxInt}
	}
	return b.state.Step()
}

// Reset starts again with the first wait. Call it after a success.
func (b *Backoff) Reset() { b.state = wait.Backoff{} }

// spread is the interval over which the calls of Backoff.Wait return that the same
// event wakes.
const spread = 500 * time.Millisecond

// Wait waits before the next attempt: for Next, or until again is closed and up to
// half a second more, so that not all waiting components retry at once. It returns
// false if ctx ends first. again may be nil.
func (b *Backoff) Wait(ctx context.Context, again <-chan struct{}) bool {
	timer := time.NewTimer(b.Next())
	defer timer.Stop()
	select {
	case <-again:
		return Pause(ctx, rand.N(spread))
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
