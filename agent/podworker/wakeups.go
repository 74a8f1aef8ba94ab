package podworker

import (
	"sync"

	"k8s.io/apimachinery/pkg/types"

	"github.com/tinylet/tinylet/agent/wait"
)

// Wakeups wake the workers of pods. It is created before the Workers, because the Syncer
// and other components need it. It is safe for concurrent use.
type Wakeups struct {
	mu    sync.Mutex
	slots map[types.UID]wait.Wakeup
}

// NewWakeups returns Wakeups without workers.
func NewWakeups() *Wakeups { return &Wakeups{slots: make(map[types.UID]wait.Wakeup)} }

// Wake triggers a sync because something that the pod depends on has changed, such as its
// containers in the runtime. It does not block. It ignores an unknown UID, and a pod that
// waits to retry a failed step: the retry observes the change.
func (w *Wakeups) Wake(uid types.UID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if slot, ok := w.slots[uid]; ok {
		slot.Set()
	}
}

// enable makes Wake set a worker's slot.
func (w *Wakeups) enable(uid types.UID, slot wait.Wakeup) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.slots[uid] = slot
}

// disable makes Wake ignore the pod, and discards a wakeup that was not received.
func (w *Wakeups) disable(uid types.UID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	select {
	case <-w.slots[uid]:
	default:
	}
	delete(w.slots, uid)
}
