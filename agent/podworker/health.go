package podworker

import (
	"context"

	"github.com/tinylet/tinylet/agent/health"
)

// Unlocked returns nil as soon as the set's lock could be taken, and an error
// if the lock is held until ctx ends. No worker holds the lock during a long
// step, such as a call of the runtime.
func (s *Workers) Unlocked(ctx context.Context) error {
	return health.CheckLock(ctx, s.mu.TryLock, s.mu.Unlock)
}
