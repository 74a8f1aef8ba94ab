package podstatus

import (
	"cmp"
	"context"
	"iter"
	"slices"
	"strings"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tinylet/tinylet/agent/health"
	"github.com/tinylet/tinylet/agent/pod"
)

// Entry is a pod and its newest status. Both are shared and must not be
// changed.
type Entry struct {
	Pod    *v1.Pod
	Status *v1.PodStatus
	// Observed means that the runtime's state of the pod was observed. Before
	// that the status is that of a new pod, or the API server's.
	Observed bool
	// Sandbox is the pod's ready sandbox; the zero Sandbox means none.
	Sandbox Sandbox
	// started are the containers that were started after the status was
	// observed. The slice is never changed in place.
	started []Running
}

// Running is a running container.
type Running struct {
	Name string
	// ID is the runtime's container ID.
	ID string
	// Restarts is the number of the attempt; the first is 0.
	Restarts int
}

// Running returns the running containers of the pod: those of the status, and
// those that were started since. A status may follow a start by minutes, while
// a hook runs or the next container's image is pulled.
func (e *Entry) Running() iter.Seq[Running] {
	return func(yield func(Running) bool) {
		for _, r := range e.started {
			if !yield(r) {
				return
			}
		}
		if e.Status == nil {
			return
		}
		for c := range pod.ContainerStatuses(e.Status) {
			_, id, _ := strings.Cut(c.ContainerID, "://")
			if id == "" || c.State.Running == nil || e.startedSince(c.Name) {
				continue
			}
			if !yield(Running{Name: c.Name, ID: id, Restarts: int(c.RestartCount)}) {
				return
			}
		}
	}
}

// RunningOf returns the running container of that name; ok is false if there is
// none.
func (e *Entry) RunningOf(name string) (found Running, ok bool) {
	for r := range e.Running() {
		if r.Name == name {
			return r, true
		}
	}
	return Running{}, false
}

func (e *Entry) startedSince(name string) bool {
	return slices.ContainsFunc(e.started, func(r Running) bool { return r.Name == name })
}

// Sandbox describes a pod's ready sandbox.
type Sandbox struct {
	// ID is the runtime's sandbox ID.
	ID string
	// Since is when it was created.
	Since time.Time
	// HostNetwork means that it uses the host's network namespace.
	HostNetwork bool
}

// Store keeps the newest status of each pod in memory. It is safe for
// concurrent use, and blocks only on its own lock, which is held briefly.
type Store struct {
	changed chan struct{}

	mu       sync.RWMutex
	entries  map[types.UID]Entry
	notified map[chan<- struct{}]struct{}
}

// NewStore returns an empty store.
func NewStore() *Store {
	return &Store{changed: make(chan struct{}, 1), entries: make(map[types.UID]Entry)}
}

// Set stores the pod, its observed status and its sandbox. The caller must not
// change them afterwards. Set reports whether the status differs from the one
// before. An equal status keeps the earlier one.
func (s *Store) Set(p *v1.Pod, status v1.PodStatus, sandbox Sandbox) (changed bool) {
	s.mu.Lock()
	old, known := s.entries[p.UID]
	changed = !known || !equality.Semantic.DeepEqual(old.Status, &status)
	e := Entry{Pod: p, Status: old.Status, Observed: true, Sandbox: sandbox} // the observation includes all earlier starts
	if changed {
		e.Status = &status
	}
	s.entries[p.UID] = e
	s.mu.Unlock()
	if changed || !old.Observed {
		s.wake()
	} else if len(old.started) > 0 {
		s.notify()
	}
	return changed
}

// RecordStart records that a container was started, and notifies the readers of
// running containers (Entry.Running). The next Set must have a status observed
// after that. Started does nothing for an unknown pod.
func (s *Store) RecordStart(uid types.UID, r Running) {
	s.mu.Lock()
	e, known := s.entries[uid]
	if known {
		e.started = append(slices.DeleteFunc(slices.Clone(e.started), func(old Running) bool { return old.Name == r.Name }), r)
		s.entries[uid] = e
	}
	s.mu.Unlock()
	if known {
		s.notify()
	}
}

// SetPod stores the pod. A known pod keeps its status. A new one has the status
// first until it is observed.
func (s *Store) SetPod(p *v1.Pod, first v1.PodStatus) {
	s.mu.Lock()
	e, known := s.entries[p.UID]
	if e.Pod = p; !known {
		e.Status = &first
	}
	s.entries[p.UID] = e
	s.mu.Unlock()
	if !known {
		s.wake()
	}
}

// Get returns the pod and its newest status, which are shared and must not be
// changed; ok is false and both are nil for an unknown UID.
func (s *Store) Get(uid types.UID) (p *v1.Pod, status *v1.PodStatus, ok bool) {
	e, ok := s.Entry(uid)
	return e.Pod, e.Status, ok
}

// Entry returns the entry of a pod; ok is false for an unknown UID.
func (s *Store) Entry(uid types.UID) (e Entry, ok bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	e, ok = s.entries[uid]
	return e, ok
}

// List returns all entries, sorted by namespace, name and UID.
func (s *Store) List() []Entry {
	s.mu.RLock()
	list := make([]Entry, 0, len(s.entries))
	for _, e := range s.entries {
		list = append(list, e)
	}
	s.mu.RUnlock()
	slices.SortFunc(list, func(a, b Entry) int {
		return cmp.Or(
			cmp.Compare(a.Pod.Namespace, b.Pod.Namespace),
			cmp.Compare(a.Pod.Name, b.Pod.Name),
			cmp.Compare(a.Pod.UID, b.Pod.UID),
		)
	})
	return list
}

// Delete forgets the pod, if it is known.
func (s *Store) Delete(uid types.UID) {
	s.mu.Lock()
	_, known := s.entries[uid]
	delete(s.entries, uid)
	s.mu.Unlock()
	if known {
		s.wake()
	}
}

// Changed returns the channel that receives after one or more changes. There is
// one such channel, for one reader, which lists again. Other readers use
// Notify.
func (s *Store) Changed() <-chan struct{} { return s.changed }

// Notify sends to slot, which has a capacity of one, after each change and each
// start of a container from now on, unless it is full. The reader lists again.
// A slow reader blocks nothing, and misses only intermediate states. cancel
// ends the notifications. A slot may be shared by several notifiers, but must
// not be registered twice with the same one at a time.
func (s *Store) Notify(slot chan<- struct{}) (cancel func()) {
	s.mu.Lock()
	if s.notified == nil {
		s.notified = make(map[chan<- struct{}]struct{})
	}
	s.notified[slot] = struct{}{}
	s.mu.Unlock()
	return func() {
		s.mu.Lock()
		delete(s.notified, slot)
		s.mu.Unlock()
	}
}

// wake notifies all readers. The caller must not hold the lock.
func (s *Store) wake() {
	trySend(s.changed)
	s.notify()
}

// notify sends to all slots of Notify. The caller must not hold the lock.
func (s *Store) notify() {
	s.mu.RLock()
	for slot := range s.notified {
		trySend(slot)
	}
	s.mu.RUnlock()
}

func trySend(slot chan<- struct{}) {
	select {
	case slot <- struct{}{}:
	default: // a wakeup is already pending
	}
}

// Unlocked returns nil as soon as the store's lock could be taken for reading,
// and an error if it cannot until ctx ends.
func (s *Store) Unlocked(ctx context.Context) error {
	return health.CheckLock(ctx, s.mu.TryRLock, s.mu.RUnlock)
}
