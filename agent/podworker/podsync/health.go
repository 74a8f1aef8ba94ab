package podsync

import (
	"context"

	"github.com/tinylet/tinylet/agent/health"
)

// Unlocked fails when a worker holds the lock of what is known of all pods
// until ctx ends.
func (s *Syncer) Unlocked(ctx context.Context) error {
	return health.Free(ctx, s.mu.TryLock, s.mu.Unlock)
}
