package diskusage

import (
	"context"
	"sync"
	"time"
)

// Guard runs calls that may hang in the kernel, where nothing can interrupt them.
// Each runs in a new goroutine, and the caller waits for a limited time only. Only
// one call per key runs at a time. A goroutine ends when the kernel responds, or with
// the process. The zero Guard is ready.
type Guard struct {
	inFlight sync.Map // the keys of running calls
}

// Do reports whether f has completed. If not, f may still run, or was not started
// because an earlier call still runs; the caller must not read what f writes.
func (g *Guard) Do(ctx context.Context, key string, wait time.Duration, f func()) bool {
	if ctx.Err() != nil {
		return false
	}
	if _, runs := g.inFlight.LoadOrStore(key, nil); runs {
		return false
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer g.inFlight.Delete(key)
		f()
	}()
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-done:
		return true
	case <-timer.C:
	case <-ctx.Done():
	}
	return false
}
