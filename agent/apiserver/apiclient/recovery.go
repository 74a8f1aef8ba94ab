package apiclient

import (
	"context"
	"math/rand/v2"
	"net/http"
	"time"
)

const (
	// recoverySpread is over how long those who waited ask again.
	recoverySpread = 500 * time.Millisecond
	// recoveryGap is the least time between two recoveries that are told: a
	// link that breaks every second must not end all waiting.
	recoveryGap = 5 * time.Second
)

// recovery tells who waits that the server is there again. It belongs to the
// transport's lock.
type recovery struct {
	away bool          // an attempt failed, and none after it succeeded
	told time.Time     // when the last recovery was
	back chan struct{} // closed by the next one
}

// attempt takes how an exchange went. An answer of the server's own that it
// refuses something says neither that it is away nor that all is well: it may
// be starting.
func (r *recovery) attempt(resp *http.Response, err error, now time.Time) {
	switch {
	case err != nil:
		r.away = true
	case resp.StatusCode == http.StatusBadGateway, resp.StatusCode == http.StatusServiceUnavailable, resp.StatusCode == http.StatusGatewayTimeout:
		r.away = true
	case resp.StatusCode < http.StatusBadRequest && r.away && now.Sub(r.told) >= recoveryGap:
		r.away, r.told = false, now
		if r.back != nil {
			close(r.back)
			r.back = nil
		}
	}
}

// Recovered answers a channel that is closed when a request next succeeds
// after others had failed: whoever waits to ask again need not wait longer.
// Ask for it before the request, and wait with Backoff.Wait.
func (c *Client) Recovered() <-chan struct{} {
	t := c.transport
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.recovery.back == nil {
		t.recovery.back = make(chan struct{})
	}
	return t.recovery.back
}

// Recoveries is Recovered of a client that may not be there yet.
type Recoveries func() <-chan struct{}

// Next is the channel of the next recovery; the nil Recoveries has none.
func (r Recoveries) Next() <-chan struct{} {
	if r == nil {
		return nil
	}
	return r()
}

// Wait waits before the next attempt: for Next, or until again is closed and a
// moment more, so that not all who waited ask at once. It says whether ctx has
// not ended. A nil channel is never closed.
func (b *Backoff) Wait(ctx context.Context, again <-chan struct{}) bool {
	timer := time.NewTimer(b.Next())
	defer timer.Stop()
	select {
	case <-again:
		timer.Reset(rand.N(recoverySpread))
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
