package podstatus

import (
	"context"

	"github.com/tinylet/tinylet/agent/health"
)

// Unlocked fails when somebody keeps readers out of the store until ctx ends.
func (s *Store) Unlocked(ctx context.Context) error {
	return health.Free(ctx, s.mu.TryRLock, s.mu.RUnlock)
}
