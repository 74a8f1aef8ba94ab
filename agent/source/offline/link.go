package offline

import (
	"errors"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// How long a read waits for the server where the journal can answer.
const (
	// patience is for a server that has not answered since the start: that of
	// all reads together, from Open on.
	patience = 2 * time.Second
	// glance is for a server of which is known that it does not answer: long
	// enough for what is in memory.
	glance = 100 * time.Millisecond
	// settled is for a server that has answered before, over a slow link.
	settled = 5 * time.Second
	// again is how long after a wait in vain the next one is: with glances
	// alone, a slow link would never get through.
	again = 30 * time.Second
)

var errPatience = errors.New("the server did not answer in time")

// link is what reads have found out about the server.
type link struct {
	met      bool      // it has answered since the start
	deadline time.Time // of all reads until then
	told     bool      // that it does not answer
}

// wait is how long a read of what the journal has may take. The caller holds
// the lock.
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

// heard notes what became of a question to the server.
func (s *Store) heard(err error) {
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsForbidden(err) {
		return
	}
	s.mu.Lock()
	first, told := !s.link.met, s.link.told
	s.link.met, s.link.told = true, false
	s.mu.Unlock()
	if first && told {
		s.config.Log.Info("the API server answers: objects are read from it again")
	}
}

// missed notes that the journal had to answer for the server.
func (s *Store) missed(err error) {
	s.mu.Lock()
	first := !s.link.met && !s.link.told
	s.link.told = s.link.told || first
	s.mu.Unlock()
	if first {
		s.config.Log.Info("the API server does not answer: objects are read from the journal", "error", err)
	}
}
