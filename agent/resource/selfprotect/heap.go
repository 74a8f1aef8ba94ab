package selfprotect

import (
	"context"
	"runtime"
	"runtime/debug"
	"sync/atomic"
	"time"

	"github.com/tinylet/tinylet/agent/wait"
)

// The heap is released when no garbage collection has begun for heapQuiet, and the free
// memory of the heap is at least minFreeHeap: less is used again by the next requests.
const (
	heapQuiet   = 30 * time.Second
	minFreeHeap = 256 << 10
)

// ReleaseHeap returns free memory of the Go heap to the kernel after each period of activity,
// until ctx ends. It returns the cause of ctx. The Go runtime itself keeps what the last
// peak needed, and a tenth more, for as long as the process is idle.
//
// After the first period, the start of the agent, it also unmaps the program: the start uses
// most of it once.
//
// The garbage collections show whether there is activity, so nothing is polled: ReleaseHeap
// sleeps until there is a collection. The Go runtime forces one every two minutes.
func ReleaseHeap(ctx context.Context) error {
	collected := wait.NewWakeup()
	stop := notifyCollections(collected)
	defer stop()
	return releaseHeap(ctx, collected, freeHeap, debug.FreeOSMemory, unmapProgram)
}

// releaseHeap is ReleaseHeap with the functions of the runtime.
func releaseHeap(ctx context.Context, collected wait.Wakeup, free func() uint64, release, unmap func()) error {
	quiet := time.NewTimer(heapQuiet)
	quiet.Stop()
	defer quiet.Stop()
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-collected:
			quiet.Reset(heapQuiet)
		case <-quiet.C:
			if unmap != nil {
				unmap()
				unmap = nil
			}
			if free() >= minFreeHeap {
				release() // a collection, after which too little is free for another release
			}
		}
	}
}

// freeHeap returns the heap memory in bytes that is free and not returned to the kernel.
func freeHeap() uint64 {
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return stats.HeapIdle - stats.HeapReleased
}

// notifyCollections sets collected after garbage collections, until stop is called: an object
// that nothing refers to is collected, and is then replaced.
func notifyCollections(collected wait.Wakeup) (stop func()) {
	var stopped atomic.Bool
	var arm func()
	arm = func() {
		object := new(*byte) // with a pointer it has an allocation of its own
		runtime.AddCleanup(object, func(struct{}) {
			if !stopped.Load() {
				arm()
				collected.Set()
			}
		}, struct{}{})
	}
	arm()
	return func() { stopped.Store(true) }
}
