package offline

import (
	"errors"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// How long a read waits for the API server if the journal has the object.
const (
	// patience is the timeout while the API server has not responded since the
	// start. All reads share it, beginning with Open.
	patience = 2 * time.Second
	// glance is the timeout for an API server that is known not to respond. It
	// is long enough to read from memory.
	glance = 100 * time.Millisecond
	// settled is the timeout for an API server that has responded before, over
	// a slow link.
	settled = 5 * time.Second
	// again is the interval between waits with a full timeout. With the
	// shortest timeout alone, reads over a slow link would never succeed.
	again = 30 * time.Second
)

var errPatience = errors.New("API server did not respond in time")

// link is the state of the connection to the API server, as observed by reads.
type link struct {
	met      bool      // the API server has responded since the start
	deadline time.Time // for all reads until then
	told     bool      // the outage was logged
}

// wait returns the timeout for a read of an object that the journal has. The
// caller holds the lock.
func (s *Store) wait(e *entry) time.Duration {
	now := time.Now()
	if s.link.met || s.config.Met != nil && s.config.Met() {
		if !e.tried.IsZero() && now.Sub(e.tried) < again {
			return glance
		}
		e.tried = now
		return settled
	}
	if now.Sub(s.link.deadline) >= again {
		s.link.deadline = now.Add(patience)
	}
	return max(s.link.deadline.Sub(now), glance)
}

// heard records the result of a request to the API server.
func (s *Store) heard(err error) {
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsForbidden(err) {
		return
	}
	s.mu.Lock()
	first, told := !s.link.met, s.link.told
	s.link.met, s.link.told = true, false
	s.mu.Unlock()
	if first && told {
		s.config.Log.Info("resumed reading objects from API server")
	}
}

// missed records that the journal was read in place of the API server.
func (s *Store) missed(err error) {
	s.mu.Lock()
	first := !s.link.met && !s.link.told
	s.link.told = s.link.told || first
	s.mu.Unlock()
	if first {
		s.config.Log.Info("read objects from journal: API server unreachable", "error", err)
	}
}
