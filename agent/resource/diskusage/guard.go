package diskusage

import (
	"context"
	"sync"
	"time"
)

// guard runs calls that may hang in the kernel, where nothing can interrupt them.
// Each runs in a new goroutine, and the caller waits for a limited time only. Only
// one call per key runs at a time. A goroutine ends when the kernel responds, or with
// the process.
type guard struct {
	mu       sync.Mutex
	inFlight map[string]struct{}
}

// do reports whether f has completed. If not, f may still run, or was not started
// because an earlier call still runs; the caller must not read what f writes.
func (g *guard) do(ctx context.Context, key string, wait time.Duration, f func()) bool {
	if wait <= 0 || ctx.Err() != nil || !g.begin(key) {
		return false
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer g.end(key)
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

func (g *guard) begin(key string) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if _, ok := g.inFlight[key]; ok {
		return false
	}
	if g.inFlight == nil {
		g.inFlight = map[string]struct{}{}
	}
	g.inFlight[key] = struct{}{}
	return true
}

func (g *guard) end(key string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.inFlight, key)
}
