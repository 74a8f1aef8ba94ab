package journal

import (
	"context"
	"errors"
	"testing"

	"github.com/tinylet/tinylet/agent/health"
)

// TestLockThatIsHeld checks that Unlocked fails if the lock is held forever. A
// Write that waits for the disk does not count.
func TestLockThatIsHeld(t *testing.T) {
	j, err := Open(Config{Dir: t.TempDir(), Log: quiet()})
	if err != nil {
		t.Fatal(err)
	}
	defer j.Close()
	j.writing.Lock()
	if err := j.Unlocked(t.Context()); err != nil {
		t.Errorf("somebody writes: %v", err)
	}
	j.writing.Unlock()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	j.mu.Lock()
	if err := j.Unlocked(ctx); !errors.Is(err, health.ErrLockHeld) {
		t.Errorf("a writer keeps readers out: %v", err)
	}
	j.mu.Unlock()
}
