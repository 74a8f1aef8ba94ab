package podstatus

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tinylet/tinylet/agent/health"
	"github.com/tinylet/tinylet/agent/pod"
	"github.com/tinylet/tinylet/agent/wait"
)

// Store keeps the newest status of each pod in memory. It is safe for
// concurrent use, and blocks only on its own lock, which is held briefly.
type Store struct {
	changed chan struct{}

	mu       sync.RWMutex
	entries  map[types.UID]pod.Entry
	notified map[chan<- struct{}]struct{}
}

// NewStore returns an empty store.
func NewStore() *Store {
	return &Store{changed: make(chan struct{}, 1), entries: make(map[types.UID]pod.Entry), notified: make(map[chan<- struct{}]struct{})}
}

// Set stores the pod, its observed status and its sandbox. The caller must not change them
// afterwards. If the status equals the previous one, Set keeps the previous one.
func (s *Store) Set(p *v1.Pod, status v1.PodStatus, sandbox pod.Sandbox) {
	s.mu.Lock()
	old, known := s.entries[p.UID]
	changed := !known || !equality.Semantic.DeepEqual(old.Status, &status)
	e := pod.Entry{Pod: p, Status: old.Status, Observed: true, Sandbox: sandbox} // the observation includes all earlier starts
	if changed {
		e.Status = &status
	}
	s.entries[p.UID] = e
	s.mu.Unlock()
	if changed || !old.Observed {
		s.wake()
	} else if len(old.Started) > 0 {
		s.notify()
	}
}

// RecordStart records that a container was started, and notifies the readers of
// running containers (Entry.Running). The next Set must have a status observed
// after that. RecordStart does nothing for an unknown pod.
func (s *Store) RecordStart(uid types.UID, r pod.RunningContainer) {
	s.mu.Lock()
	e, known := s.entries[uid]
	if known {
		e.Started = append(slices.DeleteFunc(slices.Clone(e.Started), func(old pod.RunningContainer) bool { return old.Name == r.Name }), r)
		s.entries[uid] = e
	}
	s.mu.Unlock()
	if known {
		s.notify()
	}
}

// SetPod stores the pod. A known pod keeps its status, and readers are not notified. A new
// one has the status first until Set.
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
func (s *Store) Entry(uid types.UID) (e pod.Entry, ok bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	e, ok = s.entries[uid]
	return e, ok
}

// List returns all entries, sorted by namespace, name and UID.
func (s *Store) List() []pod.Entry {
	s.mu.RLock()
	list := slices.AppendSeq(make([]pod.Entry, 0, len(s.entries)), maps.Values(s.entries))
	s.mu.RUnlock()
	slices.SortFunc(list, func(a, b pod.Entry) int {
		return cmp.Or(
			cmp.Compare(a.Pod.Namespace, b.Pod.Namespace),
			cmp.Compare(a.Pod.Name, b.Pod.Name),
			cmp.Compare(a.Pod.UID, b.Pod.UID),
		)
	})
	return list
}

// Delete removes the pod, if it is known.
func (s *Store) Delete(uid types.UID) {
	s.mu.Lock()
	_, known := s.entries[uid]
	delete(s.entries, uid)
	s.mu.Unlock()
	if known {
		s.wake()
	}
}

// Changed returns the channel that receives after one or more changes of a status or of the
// set of pods. There is one such channel, for one reader, which lists again. Other readers
// use Notify.
func (s *Store) Changed() <-chan struct{} { return s.changed }

// Notify sends to slot, which has a capacity of one, after each change and each
// start of a container from now on, unless it is full. The reader lists again.
// A slow reader does not block the store, and misses only intermediate states. cancel
// ends the notifications. A slot may be registered with several stores, but only once
// with the same store at a time.
func (s *Store) Notify(slot chan<- struct{}) (cancel func()) {
	s.mu.Lock()
	s.notified[slot] = struct{}{}
	s.mu.Unlock()
	return func() {
		s.mu.Lock()
		delete(s.notified, slot)
		s.mu.Unlock()
	}
}

// wake notifies the reader of Changed and those of Notify. The caller must not hold the
// lock.
func (s *Store) wake() {
	wait.Notify(s.changed)
	s.notify()
}

// notify sends to all slots of Notify. The caller must not hold the lock.
func (s *Store) notify() {
	s.mu.RLock()
	for slot := range s.notified {
		wait.Notify(slot)
	}
	s.mu.RUnlock()
}

// ObserveTimeout bounds how long a request waits for the first observation of a pod. A pod
// worker observes its pod first, so only a runtime that does not respond takes longer.
const ObserveTimeout = 10 * time.Second

// AwaitObserved blocks until the pod was observed or is unknown, for at most ObserveTimeout or
// until ctx ends.
func (s *Store) AwaitObserved(ctx context.Context, uid types.UID) {
	ctx, cancel := context.WithTimeout(ctx, ObserveTimeout)
	defer cancel()
	changed := make(chan struct{}, 1)
	defer s.Notify(changed)()
	for {
		if e, known := s.Entry(uid); !known || e.Observed {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-changed:
		}
	}
}

// Unlocked returns nil as soon as the store's lock could be taken for reading,
// and an error if it cannot until ctx ends.
func (s *Store) Unlocked(ctx context.Context) error {
	return health.CheckLock(ctx, s.mu.TryRLock, s.mu.RUnlock)
}

// RunningContainer returns the runtime's ID of a running container of a pod. ok is false if
// no container of the name runs.
func (s *Store) RunningContainer(uid types.UID, name string) (id string, ok bool) {
	e, ok := s.Entry(uid)
	if !ok {
		return "", false
	}
	c, ok := e.RunningOf(name)
	return c.ID, ok
}

// HasStatic reports whether there is a static pod of that name.
func (s *Store) HasStatic(namespace, name string) bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	for _, e := range s.entries {
		if pod.IsStatic(e.Pod) && e.Pod.Namespace == namespace && e.Pod.Name == name {
			return true
		}
	}
	return false
}

// Summary returns the number of pods of each phase in one line.
func (s *Store) Summary() string {
	phases := map[v1.PodPhase]int{}
	for _, e := range s.List() {
		phases[e.Status.Phase]++
	}
	var parts []string
	for _, phase := range []v1.PodPhase{v1.PodRunning, v1.PodPending, v1.PodSucceeded, v1.PodFailed, v1.PodUnknown} {
		if n := phases[phase]; n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, strings.ToLower(string(phase))))
		}
	}
	if len(parts) == 0 {
		return "No pods"
	}
	return "Pods: " + strings.Join(parts, ", ")
}

// All returns the pods with their newest statuses, in the order of List.
func (s *Store) All() iter.Seq2[*v1.Pod, *v1.PodStatus] {
	return func(yield func(*v1.Pod, *v1.PodStatus) bool) {
		for _, e := range s.List() {
			if !yield(e.Pod, e.Status) {
				return
			}
		}
	}
}
