package apiclient

import (
	"math/rand/v2"
	"time"
)

// Backoff is how long to wait before the next attempt at what the server did
// not do: twice as long each time up to a limit, and each a random time from
// the half of that on, so that a fleet does not return at once. The zero
// Backoff begins with a second and ends with 30. It is for one goroutine.
type Backoff struct {
	// First and Max are the longest first and the longest last wait.
	First, Max time.Duration

	next time.Duration
}

// Next is the wait before the next attempt.
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

// Reset is to be called after a success.
func (b *Backoff) Reset() { b.next = 0 }
