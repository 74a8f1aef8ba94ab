package podsync

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tinylet/tinylet/agent/wait"
)

func TestTurnsComeInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := make(wait.Slots, 2)
		var mu sync.Mutex
		var wg sync.WaitGroup
		var order []int
		for i := range 6 {
			wg.Go(func() {
				var mine startSlot
				if err := mine.acquire(t.Context(), all); err != nil {
					t.Error(err)
				}
				if err := mine.acquire(t.Context(), all); err != nil { // has it already
					t.Error(err)
				}
				mu.Lock()
				order = append(order, i)
				mu.Unlock()
				time.Sleep(time.Duration(i+1) * time.Millisecond)
				mine.release()
				mine.release()
			})
			synctest.Wait()
		}
		wg.Wait()
		if !slices.Equal(order, []int{0, 1, 2, 3, 4, 5}) {
			t.Errorf("turns were taken by %v", order)
		}
		if len(all) != 0 {
			t.Errorf("%d turns are not given back", len(all))
		}
	})
}

func TestATurnThatHangsPasses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := make(wait.Slots, 1)
		var hangs, next startSlot
		begun := time.Now()
		if err := hangs.acquire(t.Context(), all); err != nil {
			t.Fatal(err)
		}
		if err := next.acquire(t.Context(), all); err != nil {
			t.Fatal(err)
		}
		if waited := time.Since(begun); waited != slotTimeout {
			t.Errorf("the next waited %v", waited)
		}
		hangs.release() // what it gave up is not its own any more
		var third startSlot
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Second, errors.New("stopped"))
		defer cancel()
		if err := third.acquire(ctx, all); err == nil || err.Error() != "stopped" {
			t.Errorf("a third got in: %v", err)
		}
		third.release()
		next.release()
		if len(all) != 0 {
			t.Errorf("%d turns are not given back", len(all))
		}
	})
}
