package podsync

import (
	"context"

	"github.com/tinylet/tinylet/agent/health"
)

// Unlocked returns nil as soon as the lock of the per-pod sync state could be
// taken, and an error if it is held until ctx ends.
func (s *Syncer) Unlocked(ctx context.Context) error {
	return health.CheckLock(ctx, s.mu.TryLock, s.mu.Unlock)
}
