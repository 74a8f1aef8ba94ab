package journal

import (
	"context"

	"github.com/tinylet/tinylet/agent/health"
)

// Unlocked returns health.ErrHeld if a Write blocks Reads until ctx ends. A
// Write blocks them only while its changes take effect. While it waits for the
// disk, for however long, Unlocked returns nil.
func (j *Journal) Unlocked(ctx context.Context) error {
	return health.CheckLock(ctx, j.mu.TryRLock, j.mu.RUnlock)
}
