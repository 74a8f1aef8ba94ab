package diskusage

import (
	"context"
	"sync"
	"time"
)

// guard runs what may hang in the kernel, where nothing can end it: beside
// whoever asks, who waits for so long only. For one key only one runs at a
// time. A goroutine ends when the kernel answers, or with the process.
type guard struct {
	mu     sync.Mutex
	flying map[string]struct{}
}

// do says whether f has run to its end. If not, then it may still run, or was
// never started because an earlier one still does; what it writes must not be
// read.
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
	if _, ok := g.flying[key]; ok {
		return false
	}
	if g.flying == nil {
		g.flying = map[string]struct{}{}
	}
	g.flying[key] = struct{}{}
	return true
}

func (g *guard) end(key string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.flying, key)
}
