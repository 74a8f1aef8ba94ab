package podworker

import (
	"context"

	"github.com/tinylet/tinylet/agent/health"
)

// Unlocked fails when a worker holds the set's lock until ctx ends. A step that
// takes long, such as a call of the runtime, does not hold it.
func (s *Set) Unlocked(ctx context.Context) error { return health.Free(ctx, s.mu.TryLock, s.mu.Unlock) }
