package podworker

import (
	"context"
	"errors"
	"testing"

	"github.com/tinylet/tinylet/agent/health"
)

// TestLockThatIsHeld holds the lock for ever: Unlocked fails.
func TestLockThatIsHeld(t *testing.T) {
	s := NewWorkers(Config{})
	if err := s.Unlocked(t.Context()); err != nil {
		t.Errorf("nobody has it: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	s.mu.Lock()
	if err := s.Unlocked(ctx); !errors.Is(err, health.ErrLockHeld) {
		t.Errorf("somebody has it: %v", err)
	}
	s.mu.Unlock()
	if err := s.Unlocked(ctx); err != nil {
		t.Errorf("it was given back: %v", err)
	}
}
