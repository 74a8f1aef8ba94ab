package agent

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tinylet/tinylet/agent/node/machine"
	"github.com/tinylet/tinylet/agent/resource/diskusage"
)

// TestTasksTriggerEviction runs each task that triggers the eviction manager, because the
// kernel does not notify of low disk space and process IDs.
func TestTasksTriggerEviction(t *testing.T) {
	triggers := func(t *testing.T, a *agent, run func(ctx context.Context)) {
		t.Helper()
		var checks atomic.Int32
		a.eviction.ReadLoad = func(time.Time) (machine.Load, error) { checks.Add(1); return machine.Load{}, nil }
		a.eviction.Space = func(string) (diskusage.Space, error) {
			return diskusage.Space{Device: 1, Available: 1, Capacity: 1}, nil
		}
		ctx, cancel := context.WithCancel(t.Context())
		var ended sync.WaitGroup
		await := func(more int32) {
			t.Helper()
			for waited := 0; checks.Load() < more; waited++ {
				if time.Sleep(10 * time.Millisecond); waited == 10_000 {
					t.Error("the eviction manager was not triggered")
					return
				}
			}
		}
		ended.Go(func() { _ = a.eviction.Run(ctx) })
		await(2) // the capacity, and the first check
		ended.Go(func() { run(ctx) })
		await(3)
		cancel()
		ended.Wait()
	}
	a := everything(t, true)
	t.Run("statistics", func(t *testing.T) {
		triggers(t, a, func(ctx context.Context) { _, _ = a.usage(ctx) })
	})
	t.Run("log rotation", func(t *testing.T) {
		triggers(t, a, func(ctx context.Context) { _ = a.rotator.Run(ctx) })
	})
	t.Run("Node status", func(t *testing.T) {
		triggers(t, a, func(ctx context.Context) { _ = a.registration.registrar.Run(ctx) })
	})
	t.Run("reaper", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) { // its period is a minute
			a := everything(t, true)
			triggers(t, a, func(ctx context.Context) { _ = a.reaper.Run(ctx) })
		})
	})
}
