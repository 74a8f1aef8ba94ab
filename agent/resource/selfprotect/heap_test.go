package selfprotect

import (
	"context"
	"errors"
	"runtime"
	"runtime/debug"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tinylet/tinylet/agent/wait"
)

// TestReleaseHeap has collections come and go.
func TestReleaseHeap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		collected := wait.NewWakeup()
		var free atomic.Uint64
		var released, unmapped atomic.Int32
		free.Store(minFreeHeap)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() {
			done <- releaseHeap(ctx, collected, free.Load, func() {
				released.Add(1)
				free.Store(0)
				collected.Set() // release is a collection
			}, func() { unmapped.Add(1) })
		}()
		expect := func(step string, want int32) {
			t.Helper()
			synctest.Wait()
			if got := released.Load(); got != want {
				t.Errorf("%s: released %d times, want %d", step, got, want)
			}
		}
		time.Sleep(time.Hour)
		expect("no collection", 0)
		for range 20 { // an activity
			collected.Set()
			time.Sleep(heapQuiet - time.Second)
		}
		expect("the activity goes on", 0)
		time.Sleep(2 * time.Second)
		expect("it has ended", 1)
		if got := unmapped.Load(); got != 1 {
			t.Errorf("unmapped %d times after the first activity", got)
		}
		time.Sleep(time.Hour)
		expect("nothing more", 1)
		free.Store(minFreeHeap - 1)
		for range 10 { // as an idle process
			collected.Set()
			time.Sleep(2 * time.Minute)
		}
		expect("idle", 1)
		if got := unmapped.Load(); got != 1 {
			t.Errorf("unmapped %d times", got)
		}
		collected.Set()
		synctest.Wait()
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("returned %v", err)
		}
	})
}

// TestHeapIsReleased has the runtime of this process collect and release.
func TestHeapIsReleased(t *testing.T) {
	collected := wait.NewWakeup()
	stop := notifyCollections(collected)
	for i := range 3 {
		runtime.GC()
		select {
		case <-collected:
		case <-time.After(10 * time.Second):
			t.Fatalf("collection %d was not notified", i)
		}
	}
	stop()
	used := make([][]byte, 64)
	for i := range used {
		used[i] = make([]byte, 1<<20)
	}
	runtime.KeepAlive(used)
	used = nil
	runtime.GC()
	before := freeHeap()
	debug.FreeOSMemory()
	// Processors keep some free pages of their own, so not all is returned.
	if after := freeHeap(); after > before/4 {
		t.Errorf("%d of %d free bytes were not returned", after, before)
	}
}
