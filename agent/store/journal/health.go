package journal

import (
	"context"

	"github.com/tinylet/tinylet/agent/health"
)

// Unlocked fails when a Write keeps Reads out until ctx ends. It does so only
// for the moment in which its changes take effect: while it waits for the
// disk, however long, Unlocked returns nil.
func (j *Journal) Unlocked(ctx context.Context) error {
	return health.Free(ctx, j.mu.TryRLock, j.mu.RUnlock)
}
