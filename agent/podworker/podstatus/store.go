package podstatus

import (
	"cmp"
	"iter"
	"slices"
	"strings"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tinylet/tinylet/agent/pod"
)

// Entry is a pod and its newest status. Both are shared: nobody changes what
// they point to.
type Entry struct {
	Pod    *v1.Pod
	Status *v1.PodStatus
	// Observed says that somebody has looked at what the runtime holds of the
	// pod. Before that the status is what a new pod's would be.
	Observed bool
	// Sandbox is the pod's sandbox that is ready; the zero Sandbox is none.
	Sandbox Sandbox
	// started are the containers that were started after the status was
	// observed. It is never changed in place.
	started []Running
}

// Running is a container that runs.
type Running struct {
	Name string
	// ID is the runtime's.
	ID string
	// Restarts is which attempt it is, the first being 0.
	Restarts int
}

// Running are the containers of the pod that run: by the status, and those that
// were started since. A status may come minutes after a start, while a hook
// runs or the next container's image is pulled.
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
		for c := range pod.Statuses(e.Status) {
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

// RunningOf is the running container of that name; ok is false if there is none.
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

// Sandbox is what is known of a pod's sandbox that is ready.
type Sandbox struct {
	// ID is the runtime's.
	ID string
	// Since is when it was made.
	Since time.Time
	// HostNetwork says that it has no network of its own.
	HostNetwork bool
}

// Store keeps the newest status of each pod in memory. It is safe for
// concurrent use and never blocks on anything but its own short lock.
type Store struct {
	changed chan struct{}

	mu       sync.RWMutex
	entries  map[types.UID]Entry
	notified map[chan<- struct{}]struct{}
}

// NewStore makes an empty store.
func NewStore() *Store {
	return &Store{changed: make(chan struct{}, 1), entries: make(map[types.UID]Entry)}
}

// Set keeps the pod, the status that was observed of it, neither of which the
// caller changes any more, and its sandbox. It says whether the status is
// another one than before. A status that says the same keeps the earlier one.
func (s *Store) Set(p *v1.Pod, status v1.PodStatus, sandbox Sandbox) (changed bool) {
	s.mu.Lock()
	old, known := s.entries[p.UID]
	changed = !known || !equality.Semantic.DeepEqual(old.Status, &status)
	e := Entry{Pod: p, Status: old.Status, Observed: true, Sandbox: sandbox} // observed after all starts
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

// Started notes that a container was started, and notifies those that list what
// runs (Entry.Running): they cannot come too early. The next Set must be of what
// was observed after that. A pod that is not known has no containers.
func (s *Store) Started(uid types.UID, r Running) {
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
	e, ok := s.Entry(uid)
	return e.Pod, e.Status, ok
}

// Entry is all that is known of a pod; ok is false for an unknown UID.
func (s *Store) Entry(uid types.UID) (e Entry, ok bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	e, ok = s.entries[uid]
	return e, ok
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
// is for one reader, who lists again; others are notified.
func (s *Store) Changed() <-chan struct{} { return s.changed }

// Notify fills slot, which has room for one, after each change from now on, and
// after each start of a container,
// unless it is full. Who is woken lists again; a slow one holds up nobody and
// misses none but the steps between. cancel ends it. One slot may be given to
// several that notify, but to each only once at a time.
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

// wake is called without the lock.
func (s *Store) wake() {
	nudge(s.changed)
	s.notify()
}

// notify is called without the lock.
func (s *Store) notify() {
	s.mu.RLock()
	for slot := range s.notified {
		nudge(slot)
	}
	s.mu.RUnlock()
}

func nudge(slot chan<- struct{}) {
	select {
	case slot <- struct{}{}:
	default: // a wakeup is due already
	}
}
