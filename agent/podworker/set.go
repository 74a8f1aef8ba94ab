package podworker

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tinylet/tinylet/agent/metrics"
	"github.com/tinylet/tinylet/agent/pod"
)

// Result is what a sync that did not fail found.
type Result struct {
	// Next is when to sync again without being woken; zero is never.
	Next time.Time
	// Done says that the pod has ended for good: everything exited and
	// nothing is to be restarted.
	Done bool
}

// Syncer does the work on one pod. All calls for one UID come from one
// goroutine, one at a time. Each must return soon after its ctx ends.
type Syncer interface {
	// Submitted is told of a wanted pod before any work is done on it, and
	// again for each new version of its spec, also while the pod waits. It
	// must not block.
	Submitted(p *v1.Pod)
	// Removed is told that no source wants the pod any more, before its
	// termination begins. It must not block.
	Removed(ref pod.Ref)
	// Adopted is told which pods run already, before work on any begins.
	// It must not block.
	Adopted(running []pod.Ref)
	// Sync brings the pod towards its spec. It is repeated after an error,
	// at Result.Next, and whenever the pod is woken.
	Sync(ctx context.Context, p *v1.Pod) (Result, error)
	// Terminate stops everything of the pod and returns nil only when
	// nothing runs. p is nil for a pod that only the runtime knows. It is
	// repeated with what is left of the grace period after an error, and
	// begun again with less when the grace period shrinks.
	Terminate(ctx context.Context, ref pod.Ref, p *v1.Pod, grace time.Duration) error
	// Finish releases what a pod that does not run needs no more, and keeps
	// what tells of its end.
	Finish(ctx context.Context, ref pod.Ref, p *v1.Pod) error
	// Forget removes what is left of a finished pod that nobody wants.
	Forget(ctx context.Context, ref pod.Ref) error
}

// Backoff after a failed step: the first wait and the longest one. Each is
// lengthened at random by up to a fifth, so that pods do not move in step.
const (
	retryFirst = 500 * time.Millisecond
	retryMax   = 20 * time.Second
)

// Set is all pod workers. Its methods are safe for concurrent use and only
// note facts and wake workers; they never wait for a worker's work.
type Set struct {
	// Finished is told of each pod that has reached Terminated, by its
	// worker; it must not block. It may be nil, and is set before any pod is
	// handed over.
	Finished func(types.UID)

	syncer Syncer
	log    *slog.Logger
	now    func() time.Time
	took   metrics.Timings // steps, by what upstream calls them

	wg sync.WaitGroup

	mu      sync.Mutex
	known   bool // the runtime's pods were handed to Adopt
	workers map[types.UID]*worker
	// names are the UIDs that share a full name, in the order in which they
	// came; the first holds the name.
	names map[string][]types.UID
}

// worker is one goroutine and the life that it carries. All fields but the
// channels are guarded by the set's lock.
type worker struct {
	life   life
	wake   chan struct{}           // one slot: the facts of the life changed
	look   chan struct{}           // one slot: the runtime reported a change
	cancel context.CancelCauseFunc // ends the running Sync or Terminate
	// deaf is true between a failed step and its retry: what the failure
	// itself stirs up in the runtime must not cut the backoff short.
	deaf bool
}

// Found is a pod that the runtime holds.
type Found struct {
	Ref pod.Ref
	// Grace is the pod's termination grace period, negative if not known.
	Grace time.Duration
	// Running says that something of it runs.
	Running bool
}

// NewSet makes a set without workers; nothing is started.
func NewSet(syncer Syncer, log *slog.Logger) *Set {
	return &Set{
		syncer:  syncer,
		log:     log,
		now:     time.Now,
		workers: make(map[types.UID]*worker),
		names:   make(map[string][]types.UID),
	}
}

// Wait blocks until every worker has returned, which they do when the ctx
// that they were started with ends. Pods are left as they are.
func (s *Set) Wait() { s.wg.Wait() }

// Submit says that a source wants the pod, in this version. A pod with a
// deletion timestamp is terminated with its deletion grace period. ctx is
// the life of the worker that may be started.
func (s *Set) Submit(ctx context.Context, p *v1.Pod) {
	s.syncer.Submitted(p)
	s.mu.Lock()
	defer s.mu.Unlock()
	w := s.ensure(ctx, pod.RefOf(p))
	l := &w.life
	switch {
	case l.removed && p.DeletionTimestamp == nil:
		l.next = p // after this life, if it is still wanted then
	case l.removed:
	case p.DeletionTimestamp != nil:
		l.pod = p
		s.stop(w, pod.GracePeriod(p))
	default:
		l.pod = p
		w.signal()
	}
}

// Adopt hands over the pods that the runtime holds. Those that have no
// worker yet get one that holds the full name and does nothing until Submit
// or Remove. The first call lets submitted pods begin.
func (s *Set) Adopt(ctx context.Context, found []Found) {
	var running []pod.Ref
	for _, f := range found {
		if f.Running {
			running = append(running, f.Ref)
		}
	}
	s.syncer.Adopted(running)
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, f := range found {
		l := &s.ensure(ctx, f.Ref).life
		l.found = l.found || f.Running
		if l.pod == nil && f.Grace >= 0 {
			l.promised = f.Grace
		}
	}
	if !s.known {
		s.known = true
		for _, w := range s.workers {
			w.signal()
		}
	}
}

// Remove says that no source wants the pod: it is terminated within its own
// grace period, finished and forgotten. An unknown UID gets a worker for
// just that.
func (s *Set) Remove(ctx context.Context, ref pod.Ref) {
	s.syncer.Removed(ref)
	s.mu.Lock()
	defer s.mu.Unlock()
	w := s.ensure(ctx, ref)
	w.life.removed, w.life.next = true, nil
	s.stop(w, w.life.ownGrace())
	w.signal() // a terminated pod is to be forgotten
}

// End has a pod stop within at most grace, though a source wants it, and not
// start again. A pod that is stopping already stops sooner, if grace is
// shorter. An unknown UID is ignored. It says whether the pod stops sooner than
// it would have.
func (s *Set) End(uid types.UID, grace time.Duration) (sooner bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	w := s.workers[uid]
	return w != nil && s.stop(w, grace)
}

// Wake makes the pod's worker look again because the runtime reported a
// change. An unknown UID is ignored, and so is a pod that is about to repeat
// a failed step: it looks again then.
func (s *Set) Wake(uid types.UID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if w := s.workers[uid]; w != nil && !w.deaf {
		fill(w.look)
	}
}

// RuntimeKnown says whether Adopt was called: before that nobody knows what
// runs.
func (s *Set) RuntimeKnown() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.known
}

// State says in which state a UID's worker is; ok is false for an unknown UID.
func (s *Set) State(uid types.UID) (state State, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	w := s.workers[uid]
	if w == nil {
		return 0, false
	}
	return w.life.state(), true
}

// Known says for every UID with a worker in which state it is.
func (s *Set) Known() map[types.UID]State {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make(map[types.UID]State, len(s.workers))
	for uid, w := range s.workers {
		out[uid] = w.life.state()
	}
	return out
}

// Adopted says whether the pod ran when it was found, and nobody has asked for
// it yet.
func (s *Set) Adopted(uid types.UID) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	w := s.workers[uid]
	return w != nil && w.life.found && w.life.state() == Adopted
}

// Unclaimed lists the adopted pods: what runs, and nobody has asked for.
func (s *Set) Unclaimed() []pod.Ref {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []pod.Ref
	for _, w := range s.workers {
		if w.life.state() == Adopted {
			out = append(out, w.life.ref)
		}
	}
	return out
}

// ensure finds or starts the worker of a UID. The set is locked.
func (s *Set) ensure(ctx context.Context, ref pod.Ref) *worker {
	if w := s.workers[ref.UID]; w != nil {
		return w
	}
	w := &worker{life: newLife(ref), wake: make(chan struct{}, 1), look: make(chan struct{}, 1)}
	s.workers[ref.UID] = w
	s.queue(w)
	s.wg.Go(func() { s.run(ctx, w) })
	return w
}

// queue puts the worker in the line for its full name. The set is locked.
func (s *Set) queue(w *worker) {
	name := w.life.ref.FullName()
	s.names[name] = append(s.names[name], w.life.ref.UID)
	w.life.holdsName = len(s.names[name]) == 1
}

// release leaves the line for the full name, and wakes who is next. The set
// is locked.
func (s *Set) release(w *worker) {
	name := w.life.ref.FullName()
	line := s.names[name]
	for i, uid := range line {
		if uid == w.life.ref.UID {
			line = append(line[:i:i], line[i+1:]...)
			break
		}
	}
	w.life.holdsName = false
	if len(line) == 0 {
		delete(s.names, name)
		return
	}
	s.names[name] = line
	if next := s.workers[line[0]]; next != nil && !next.life.holdsName {
		next.life.holdsName = true
		next.signal()
	}
}

// stop begins or shortens a termination, which interrupts what the worker is
// doing, and says whether it did. The set is locked.
func (s *Set) stop(w *worker, grace time.Duration) bool {
	if !w.life.stop(s.now(), grace) {
		return false
	}
	if w.cancel != nil {
		w.cancel(errTerminating)
	}
	w.signal()
	return true
}

// signal says that the facts changed, without ever blocking.
func (w *worker) signal() { fill(w.wake) }

func fill(slot chan struct{}) {
	select {
	case slot <- struct{}{}:
	default:
	}
}

// plug makes the worker deaf until its next step. The set is locked.
func (w *worker) plug() {
	w.deaf = true
	select {
	case <-w.look:
	default:
	}
}

// retryAfter is the wait before try n+1, n counting from 0.
func retryAfter(n int) time.Duration {
	d := retryMax
	if n < 6 {
		d = min(retryFirst<<n, retryMax)
	}
	return d + rand.N(d/5)
}
