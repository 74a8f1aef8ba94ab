package offline

import (
	"context"

	"github.com/tinylet/tinylet/agent/health"
)

// Unlocked returns an error if the lock of the store or of its journal is not
// released before ctx ends. A wait for the disk does not count.
func (s *Store) Unlocked(ctx context.Context) error {
	if err := health.CheckLock(ctx, s.mu.TryLock, s.mu.Unlock); err != nil {
		return err
	}
	if j, ok := s.journal.(interface {
		Unlocked(ctx context.Context) error
	}); ok {
		return j.Unlocked(ctx)
	}
	return nil
}
