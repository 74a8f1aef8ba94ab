package offline

import (
	"context"

	"github.com/tinylet/tinylet/agent/health"
)

// Unlocked fails when somebody keeps all others out of the store, or of its
// journal, until ctx ends. A wait for the disk is no such fault.
func (s *Store) Unlocked(ctx context.Context) error {
	if err := health.Free(ctx, s.mu.TryLock, s.mu.Unlock); err != nil {
		return err
	}
	if j, ok := s.journal.(interface {
		Unlocked(ctx context.Context) error
	}); ok {
		return j.Unlocked(ctx)
	}
	return nil
}
