package podstatus

import (
	"context"

	"github.com/tinylet/tinylet/agent/health"
)

// Unlocked returns nil as soon as the store's lock could be taken for reading,
// and an error if it cannot until ctx ends.
func (s *Store) Unlocked(ctx context.Context) error {
	return health.CheckLock(ctx, s.mu.TryRLock, s.mu.RUnlock)
}
