package agent

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tinylet/tinylet/agent/resource/eviction"
)

// TestOthersLookForEvictions has each part run that is awake for something else:
// it has the node looked at for evictions, since the kernel tells neither of
// disks nor of process IDs.
func TestOthersLookForEvictions(t *testing.T) {
	looks := func(t *testing.T, a *parts, run func(ctx context.Context)) {
		t.Helper()
		loop := eviction.New(eviction.Config{})
		a.evictions.loop.Store(loop)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { defer close(ended); run(ctx) }()
		for waited := 0; len(loop.TriggerChannel()) == 0; waited++ {
			if time.Sleep(10 * time.Millisecond); waited == 10_000 {
				t.Error("the node is not looked at")
				break
			}
		}
		cancel()
		<-ended
	}
	a := everything(t, true)
	t.Run("figures", func(t *testing.T) {
		looks(t, a, func(ctx context.Context) { _, _ = a.usage(ctx) })
	})
	t.Run("log rotation", func(t *testing.T) {
		looks(t, a, func(ctx context.Context) { _ = a.rotator.Run(ctx) })
	})
	t.Run("Node's status", func(t *testing.T) {
		looks(t, a, func(ctx context.Context) { _ = a.cluster.registrar.Run(ctx) })
	})
	t.Run("lost containers", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) { // they are looked for after a minute
			looks(t, a, func(ctx context.Context) { _ = a.lost.Run(ctx) })
		})
	})
}
