package offline

import (
	"context"
	"errors"
	"log/slog"
	"testing"

	"github.com/tinylet/tinylet/agent/health"
)

// TestLockThatIsHeld checks that the health check fails while a lock is held
// forever. The token of a writer, which may wait for the disk, does not count.
func TestLockThatIsHeld(t *testing.T) {
	s, err := Open(Config{Dir: t.TempDir(), Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	<-s.writeToken // as who writes does
	if err := s.Unlocked(t.Context()); err != nil {
		t.Errorf("somebody writes: %v", err)
	}
	s.writeToken <- struct{}{}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	s.mu.Lock()
	if err := s.Unlocked(ctx); !errors.Is(err, health.ErrLockHeld) {
		t.Errorf("somebody has it: %v", err)
	}
	s.mu.Unlock()
}
