package offline

import (
	"errors"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// How long a read waits for the API server if the journal has the object.
const (
	// firstContactTimeout is the timeout while the API server has not responded since the
	// start. All reads share it, beginning with Open.
	firstContactTimeout = 2 * time.Second
	// minTimeout is the timeout for an API server that is known not to respond. It
	// is long enough to read from memory.
	minTimeout = 100 * time.Millisecond
	// contactedTimeout is the timeout for an API server that has responded before, over
	// a slow link.
	contactedTimeout = 5 * time.Second
	// fullWaitInterval is the interval between waits with a full timeout. With the
	// shortest timeout alone, reads over a slow link would never succeed.
	fullWaitInterval = 30 * time.Second
)

var errTimeout = errors.New("API server did not respond in time")

// link is the state of the connection to the API server, as observed by reads.
type link struct {
	contacted    bool      // the API server has responded since the start
	deadline     time.Time // for all reads until then
	outageLogged bool      // the outage was logged
}

// readTimeout returns the timeout for a read of an object that the journal has. The
// caller holds the lock.
func (s *Store) readTimeout(e *entry) time.Duration {
	now := time.Now()
	if s.link.contacted || s.config.Contacted != nil && s.config.Contacted() {
		if !e.tried.IsZero() && now.Sub(e.tried) < fullWaitInterval {
			return minTimeout
		}
		e.tried = now
		return contactedTimeout
	}
	if now.Sub(s.link.deadline) >= fullWaitInterval {
		s.link.deadline = now.Add(firstContactTimeout)
	}
	return max(s.link.deadline.Sub(now), minTimeout)
}

// recordResponse records the result of a request to the API server.
func (s *Store) recordResponse(err error) {
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsForbidden(err) {
		return
	}
	s.mu.Lock()
	first, logged := !s.link.contacted, s.link.outageLogged
	s.link.contacted, s.link.outageLogged = true, false
	s.mu.Unlock()
	if first && logged {
		s.config.Log.Info("resumed reading objects from API server")
	}
}

// recordFallback records that the journal was read in place of the API server.
func (s *Store) recordFallback(err error) {
	s.mu.Lock()
	first := !s.link.contacted && !s.link.outageLogged
	s.link.outageLogged = s.link.outageLogged || first
	s.mu.Unlock()
	if first {
		s.config.Log.Info("read objects from journal: API server unreachable", "error", err)
	}
}
