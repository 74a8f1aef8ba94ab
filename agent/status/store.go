package status

import (
	"cmp"
	"slices"
	"sync"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
)

// Entry is a pod and its newest status. Both are shared: nobody changes what
// they point to.
type Entry struct {
	Pod    *v1.Pod
	Status *v1.PodStatus
	// Observed says that somebody has looked at what the runtime holds of the
	// pod. Before that the status is what a new pod's would be.
	Observed bool
}

// Store keeps the newest status of each pod in memory. It is safe for
// concurrent use and never blocks on anything but its own short lock.
type Store struct {
	changed chan struct{}

	mu      sync.RWMutex
	entries map[types.UID]Entry
}

// NewStore makes an empty store.
func NewStore() *Store {
	return &Store{changed: make(chan struct{}, 1), entries: make(map[types.UID]Entry)}
}

// Set keeps the pod and the status that was observed of it, neither of which
// the caller changes any more, and says whether the status is another one than
// before. A status that says the same keeps the earlier one.
func (s *Store) Set(p *v1.Pod, status v1.PodStatus) (changed bool) {
	s.mu.Lock()
	old, known := s.entries[p.UID]
	changed = !known || !equality.Semantic.DeepEqual(old.Status, &status)
	e := Entry{Pod: p, Status: old.Status, Observed: true}
	if changed {
		e.Status = &status
	}
	s.entries[p.UID] = e
	s.mu.Unlock()
	if changed || !old.Observed {
		s.wake()
	}
	return changed
}

// Submit keeps the pod. Of one that is known the status stays as it is; that
// of another is first, until it is observed.
func (s *Store) Submit(p *v1.Pod, first v1.PodStatus) {
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

// Get is the pod and its newest status, both shared and not to be changed;
// ok is false and both are nil for an unknown UID.
func (s *Store) Get(uid types.UID) (p *v1.Pod, status *v1.PodStatus, ok bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	e, ok := s.entries[uid]
	return e.Pod, e.Status, ok
}

// List is all entries by namespace, name and UID.
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

// Changed receives after one or more changes. There is one such channel: it
// is for one reader, who lists again.
func (s *Store) Changed() <-chan struct{} { return s.changed }

func (s *Store) wake() {
	select {
	case s.changed <- struct{}{}:
	default: // a wakeup is due already
	}
}
