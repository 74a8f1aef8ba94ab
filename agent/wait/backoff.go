package wait

import (
	"context"
	"math/rand/v2"
	"time"
)

// Backoff computes the waits between attempts. The wait doubles each time up to a
// limit; the actual wait is random between half of that and all of it, so that a
// fleet does not return at once. The zero Backoff starts with 1 s and ends with 30
// s. It is not safe for concurrent use.
type Backoff struct {
	// First is the upper bound of the first wait, Max that of the longest; 0 means
	// 1 s and 30 s.
	First, Max time.Duration

	next time.Duration
}

// Next returns the wait before the next attempt.
func (b *Backoff) Next() time.Duration {
	first, most := b.First, b.Max
	if first == 0 {
		first = time.Second
	}
	if most == 0 {
		most = 30 * time.Second
	}
	if b.next == 0 {
		b.next = first
	}
	d := min(b.next, most)
	b.next = min(2*d, most)
	return d/2 + rand.N(d/2+1)
}

// Reset starts again with the first wait. Call it after a success.
func (b *Backoff) Reset() { b.next = 0 }

// spread is the interval over which Backoff.Wait returns in several waiting
// components that the same event wakes.
const spread = 500 * time.Millisecond

// Wait waits before the next attempt: for Next, or until again is closed and up to
// half a second more, so that not all waiting components retry at once. It reports
// whether ctx has not ended. A nil channel is never closed.
func (b *Backoff) Wait(ctx context.Context, again <-chan struct{}) bool {
	timer := time.NewTimer(b.Next())
	defer timer.Stop()
	select {
	case <-again:
		timer.Reset(rand.N(spread))
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
