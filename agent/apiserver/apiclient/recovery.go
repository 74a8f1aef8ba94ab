package apiclient

import (
	"net/http"
	"time"
)

// recoveryGap is the minimum time between two reported recoveries: a link that breaks
// every second must not end all waits.
const recoveryGap = 5 * time.Second

// recovery reports that the API server answers again. The transport's lock guards it.
type recovery struct {
	away        bool          // an attempt failed, and no recovery was reported since
	recoveredAt time.Time     // time of the last recovery
	back        chan struct{} // closed by the next one
}

// attempt records the result of a request. No response, 502, 503 and 504 begin an
// outage, and a status below 400 ends it. Other error statuses do neither: the server
// may be starting.
func (r *recovery) attempt(resp *http.Response, err error, now time.Time) {
	switch {
	case err != nil, resp.StatusCode == http.StatusBadGateway, resp.StatusCode == http.StatusServiceUnavailable, resp.StatusCode == http.StatusGatewayTimeout:
		r.away = true
	case resp.StatusCode < http.StatusBadRequest && r.away && now.Sub(r.recoveredAt) >= recoveryGap:
		r.away, r.recoveredAt = false, now
		if r.back != nil {
			close(r.back)
			r.back = nil
		}
	}
}

// Recovered returns a channel that is closed when a request next succeeds after others
// failed, at most every 5 s, so that components that wait to retry need not wait longer.
// Call it before the request, and wait with wait.Backoff.
func (c *Client) Recovered() <-chan struct{} {
	t := c.transport
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.recovery.back == nil {
		t.recovery.back = make(chan struct{})
	}
	return t.recovery.back
}

// Recoveries is the method Recovered of a client that may not exist yet.
type Recoveries func() <-chan struct{}

// Next returns the channel of the next recovery. For nil Recoveries it returns nil,
// which is never closed.
func (r Recoveries) Next() <-chan struct{} {
	if r == nil {
		return nil
	}
	return r()
}
