package health

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

func TestRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		var held sync.Mutex
		held.Lock()
		well := Check{"well", func(context.Context) error { return nil }}
		slow := Check{"slow", func(context.Context) error { time.Sleep(time.Second); return nil }}
		locked := Check{"locked", func(ctx context.Context) error { return CheckLock(ctx, held.TryLock, held.Unlock) }}
		if err := Run(t.Context(), 5*time.Second, []Check{well, slow}); err != nil || time.Since(start) != time.Second {
			t.Errorf("after %v: %v", time.Since(start), err)
		}
		err := Run(t.Context(), 5*time.Second, []Check{well, locked, slow})
		if !errors.Is(err, ErrLockHeld) || !strings.HasPrefix(err.Error(), "locked: ") || time.Since(start) != 6*time.Second {
			t.Errorf("after %v: %v", time.Since(start), err)
		}
		go func() { time.Sleep(3 * time.Second); held.Unlock() }()
		if err := Run(t.Context(), 5*time.Second, []Check{locked}); err != nil || time.Since(start).Round(time.Second) != 9*time.Second {
			t.Errorf("after %v: %v", time.Since(start), err)
		}
		if !held.TryLock() {
			t.Error("the check keeps the lock")
		}
	})
}

func TestFreeOfReaders(t *testing.T) {
	var lock sync.RWMutex
	lock.RLock()
	if err := CheckLock(t.Context(), lock.TryRLock, lock.RUnlock); err != nil {
		t.Errorf("a reader has it: %v", err)
	}
	lock.RUnlock()
	lock.Lock()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := CheckLock(ctx, lock.TryRLock, lock.RUnlock); !errors.Is(err, ErrLockHeld) {
		t.Errorf("a writer has it: %v", err)
	}
}
