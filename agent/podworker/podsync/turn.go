package podsync

import (
	"context"
	"runtime"
	"time"

	"github.com/tinylet/tinylet/agent/wait"
)

// slotTimeout is how long a pod may hold a start slot. A slow board needs much less
// CPU time than that for a start. A pod that takes longer waits for something else.
const slotTimeout = 10 * time.Second

// minSlots is the limit for a node with one processor: starting a pod also
// waits for the disk.
const minSlots = 2

// newStartSlots limits the number of pods that start at the same time. Pods get slots
// in the order of their requests. Starting a pod is CPU-bound: if ten pods start in
// parallel, all of them run late. If they start one after the other, half of them run
// in half the time.
//
// Image pulls, volumes and postStart hooks need no start slot.
func newStartSlots() wait.Slots { return make(wait.Slots, max(minSlots, runtime.NumCPU())) }

// startSlot is the start slot of one pod. Its zero value holds none. It is not safe
// for concurrent use.
type startSlot struct{ end func() }

// acquire blocks until the pod has a start slot. It returns at once if the pod has
// one. It returns the cause of ctx when ctx ends.
func (m *startSlot) acquire(ctx context.Context, slots wait.Slots) (err error) {
	if m.end == nil {
		m.end, err = slots.Acquire(ctx, slotTimeout)
	}
	return err
}

func (m *startSlot) release() {
	if m.end != nil {
		m.end()
		m.end = nil
	}
}
