package local

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
)

func TestDrain(t *testing.T) {
	var left atomic.Int32
	left.Store(2)
	next := make(chan error)
	var cancelled atomic.Bool
	c := start(t, Config{Drain: Drain{
		Begin: func(ctx context.Context) error {
			select {
			case err := <-next:
				return err
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		},
		Cancel:    func() { cancelled.Store(true) },
		Remaining: func() int { return int(left.Load()) },
	}})

	var seen []int
	result, err := c.Drain(t.Context(), func(n int) {
		seen = append(seen, n)
		if n == 2 {
			left.Store(1)
			return
		}
		left.Store(0)
		next <- nil
	})
	if err != nil || result != 0 || !slices.Equal(seen, []int{2, 1}) {
		t.Errorf("left %d, %v; seen %v", result, err, seen)
	}

	left.Store(3)
	go func() { next <- errors.New("node shutdown is not configured") }()
	if result, err := c.Drain(t.Context(), func(int) {}); err == nil || err.Error() != "node shutdown is not configured" || result != 3 {
		t.Errorf("left %d, %v", result, err)
	}

	why := errors.New("enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	_, err = c.Drain(ctx, func(int) { cancel(why) })
	if !errors.Is(err, why) {
		t.Errorf("interrupted: %v", err)
	}
	if err := c.CancelDrain(t.Context()); err != nil || !cancelled.Load() {
		t.Errorf("cancel: %v, called %t", err, cancelled.Load())
	}
}

func TestDrainWithoutShutdown(t *testing.T) {
	c := start(t, Config{})
	if _, err := c.Drain(t.Context(), func(int) {}); err == nil || !strings.Contains(err.Error(), "not supported") {
		t.Errorf("drain: %v", err)
	}
	if err := c.CancelDrain(t.Context()); err == nil || !strings.Contains(err.Error(), "not supported") {
		t.Errorf("cancel: %v", err)
	}
	if _, err := NewClient(t.TempDir()+"/none").Drain(t.Context(), func(int) {}); !errors.Is(err, ErrNotRunning) {
		t.Errorf("without an agent: %v", err)
	}
}
