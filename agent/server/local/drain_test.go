package local

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
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

// TestDrainEndsWithItsRequest: the handler of a client that has disconnected, for which the
// server waits, ends Begin and waits for its return.
func TestDrainEndsWithItsRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ended := false
		s := newServer(t, Config{Drain: Drain{
			Begin: func(ctx context.Context) error {
				<-ctx.Done()
				time.Sleep(time.Minute)
				ended = true
				return context.Cause(ctx)
			},
			Remaining: func() int { return 1 },
		}})
		s.drain(&broken{recorded{header: http.Header{}}}, httptest.NewRequestWithContext(t.Context(), http.MethodPost, PathDrain, nil))
		if !ended {
			t.Error("the request ended before Begin did")
		}
	})
}

// broken is the response writer of a client that has disconnected.
type broken struct{ recorded }

func (b *broken) Write([]byte) (int, error) { return 0, io.ErrClosedPipe }

func TestDrainWithoutAgent(t *testing.T) {
	if _, err := NewClient(t.TempDir()+"/none").Drain(t.Context(), func(int) {}); !errors.Is(err, ErrNotRunning) {
		t.Errorf("without an agent: %v", err)
	}
}
