package podworker

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tinylet/tinylet/agent/container/pleg"
	"github.com/tinylet/tinylet/agent/metrics"
	"github.com/tinylet/tinylet/agent/pod"
	"github.com/tinylet/tinylet/agent/wait"
)

// Result is the result of a successful sync.
type Result struct {
	// Next is the time of the next sync if nothing wakes the worker before;
	// zero means no such time.
	Next time.Time
	// Done means that the pod has finished: every container has exited and none
	// will be restarted.
	Done bool
}

// Syncer does the work on one pod. One goroutine makes all calls for a UID, one
// at a time. Each call must return soon after its ctx ends.
type Syncer interface {
	// OnPodAdded is called with a pod of a source before any work on it, and
	// again for each update of it, also while the pod waits. It must not block.
	OnPodAdded(p *v1.Pod)
	// OnPodRemoved is called when no source has the pod, before its worker acts
	// on that. The pod may already be terminating or terminated. It must not
	// block.
	OnPodRemoved(ref pod.Ref)
	// OnPodsDiscovered is called with the running pods of each snapshot of the
	// runtime. No pod is synced before its first call. It must not block.
	OnPodsDiscovered(running []pod.Ref)
	// Sync brings the pod towards its spec. It is called again after an error,
	// at Result.Next, and whenever the pod's worker is woken.
	Sync(ctx context.Context, p *v1.Pod) (Result, error)
	// Terminate stops everything of the pod and returns nil only when nothing
	// runs. p is nil for a pod that no source has submitted; ref then may have
	// only the UID. After an error Terminate is called again with the rest of
	// the grace period. When the grace period shrinks, it is cancelled and
	// called again with the shorter one.
	Terminate(ctx context.Context, ref pod.Ref, p *v1.Pod, grace time.Duration) error
	// Finish releases what a terminated pod no longer needs. It keeps the
	// records of how the pod ended. p is nil as for Terminate.
	Finish(ctx context.Context, ref pod.Ref, p *v1.Pod) error
	// Forget removes the remains of a terminated pod that no source has.
	Forget(ctx context.Context, ref pod.Ref) error
}

// Backoff after a failed step: the first and the longest wait. Each wait is
// lengthened at random by up to a fifth, so that pods do not retry at the same time.
const (
	retryFirst = 500 * time.Millisecond
	retryMax   = 20 * time.Second
)

// Config configures Workers.
type Config struct {
	Syncer Syncer
	// Wakeups wake the workers. A Wakeups serves one Workers only.
	Wakeups *Wakeups
	// OnTerminated is called by a pod's worker when the pod reaches Terminated. It
	// must not block.
	OnTerminated func(types.UID)
	Log          *slog.Logger
}

// Workers holds all pod workers. Its methods are safe for concurrent use. They only
// record state and wake workers; they never wait for a step.
type Workers struct {
	*Wakeups
	cfg       Config
	now       func() time.Time
	durations metrics.TimingVec // durations of steps, by upstream's operation type

	wg sync.WaitGroup

	mu           sync.Mutex
	runtimeKnown bool // AdoptRunning was called
	workers      map[types.UID]*worker
	// names lists the UIDs that share a full name, in order of arrival. The
	// first one holds the name.
	names map[string][]types.UID
}

// worker is one goroutine and the state of its pod. Workers.mu guards all
// fields but the channels.
type worker struct {
	status podSyncStatus
	wake   wait.Wakeup             // the pod's state changed
	events wait.Wakeup             // set by Wakeups.Wake
	cancel context.CancelCauseFunc // cancels the running Sync or Terminate
	// evicted is closed when the pod is terminated; nil unless Evict was called for it.
	evicted chan struct{}
}

// NewWorkers returns Workers without any worker. It starts no goroutine.
func NewWorkers(c Config) *Workers {
	return &Workers{
		Wakeups: c.Wakeups,
		cfg:     c,
		now:     time.Now,
		workers: make(map[types.UID]*worker),
		names:   make(map[string][]types.UID),
	}
}

// Wait blocks until every worker has returned. A worker returns when the ctx
// that it was started with ends. The pods keep running.
func (s *Workers) Wait() { s.wg.Wait() }

// UpdatePod records that a source has the pod, in this version. A pod with a
// deletion timestamp is terminated within its deletion grace period. ctx bounds
// the lifetime of a worker that UpdatePod starts. A removed pod that is submitted again
// is synced once it is forgotten. An update with a deletion timestamp cancels that.
func (s *Workers) UpdatePod(ctx context.Context, p *v1.Pod) {
	s.cfg.Syncer.OnPodAdded(p)
	s.mu.Lock()
	defer s.mu.Unlock()
	w := s.ensure(ctx, pod.RefOf(p))
	l := &w.status
	switch {
	case l.removed && p.DeletionTimestamp == nil:
		l.resubmitted = p // submitted again once the removed pod is forgotten
	case l.removed:
		l.resubmitted = nil
	case p.DeletionTimestamp != nil:
		l.pod = p
		s.stop(w, pod.TerminationGracePeriod(p))
	default:
		l.pod = p
		w.wake.Set()
	}
}

// AdoptRunning records the pods that the runtime has. A pod without a worker gets one,
// which queues for the full name and does nothing until UpdatePod, RemovePod or
// TerminatePod. The first call lets submitted pods begin.
func (s *Workers) AdoptRunning(ctx context.Context, found []pleg.Pod) {
	var running []pod.Ref
	for _, f := range found {
		if f.Running {
			running = append(running, f.Ref)
		}
	}
	s.cfg.Syncer.OnPodsDiscovered(running)
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, f := range found {
		l := &s.ensure(ctx, f.Ref).status
		l.ranBefore = l.ranBefore || f.Running
		if l.pod == nil && f.GracePeriod >= 0 {
			l.runtimeGrace = f.GracePeriod
		}
	}
	if !s.runtimeKnown {
		s.runtimeKnown = true
		for _, w := range s.workers {
			w.wake.Set()
		}
	}
}

// RemovePod records that no source has the pod: the pod is terminated within its
// own grace period, finished and forgotten. An unknown UID gets a worker for
// that.
func (s *Workers) RemovePod(ctx context.Context, ref pod.Ref) {
	s.cfg.Syncer.OnPodRemoved(ref)
	s.mu.Lock()
	defer s.mu.Unlock()
	w := s.ensure(ctx, ref)
	w.status.removed, w.status.resubmitted = true, nil
	s.stop(w, w.status.ownGrace())
	w.wake.Set() // so that a terminated pod is forgotten
}

// TerminatePod terminates a pod within at most grace, although a source still has it,
// and the pod does not start again. It shortens a termination that has begun,
// if grace is shorter. It ignores an unknown UID. It reports whether the pod
// stops sooner than it would have.
func (s *Workers) TerminatePod(uid types.UID, grace time.Duration) (sooner bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	w := s.workers[uid]
	return w != nil && s.stop(w, grace)
}

// Evict terminates a syncing pod within at most grace, or shortens its termination, as
// TerminatePod does. The first call for a pod calls record before that, which reports the
// reason. terminated is closed when the pod is terminated. It is nil if the pod neither
// syncs nor terminates, or if it was evicted before and does not stop sooner.
func (s *Workers) Evict(uid types.UID, grace time.Duration, record func()) (terminated <-chan struct{}) {
	terminated, first := s.awaitTermination(uid)
	if terminated == nil {
		return nil
	}
	if first {
		record()
	}
	if !s.TerminatePod(uid, grace) && !first {
		return nil
	}
	return terminated
}

// RehearseEvict runs the code of Evict, and calls record, without an effect on any pod. uid
// must be that of no pod.
func RehearseEvict(uid types.UID, grace time.Duration, record func()) {
	s := NewWorkers(Config{Wakeups: NewWakeups()})
	w := &worker{status: newPodSyncStatus(pod.Ref{UID: uid}), wake: wait.NewWakeup(), events: wait.NewWakeup()}
	_, w.cancel = context.WithCancelCause(context.Background())
	w.status.pod, w.status.syncStarted = &v1.Pod{}, true
	s.workers[uid] = w
	s.enable(uid, w.events)
	s.Evict(uid, grace, func() {
		record()
		s.Wake(uid)
	})
}

// awaitTermination returns the channel that is closed when a syncing or terminating pod is
// terminated, or nil for a pod in another state. first reports whether no earlier call
// returned the channel.
func (s *Workers) awaitTermination(uid types.UID) (terminated <-chan struct{}, first bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	w := s.workers[uid]
	if w == nil || w.status.state() != Syncing && w.status.state() != Terminating {
		return nil, false
	}
	if w.evicted != nil {
		return w.evicted, false
	}
	w.evicted = make(chan struct{})
	return w.evicted, true
}

// RuntimeKnown reports whether AdoptRunning was called. Before that it is unknown
// which pods run.
func (s *Workers) RuntimeKnown() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.runtimeKnown
}

// State returns the state of a UID's worker; ok is false for an unknown UID.
func (s *Workers) State(uid types.UID) (state State, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	w := s.workers[uid]
	if w == nil {
		return 0, false
	}
	return w.status.state(), true
}

// IsTerminated reports whether no process and no mount of a pod is left. It returns true for an
// unknown UID.
func (s *Workers) IsTerminated(uid types.UID) bool {
	state, known := s.State(uid)
	return !known || state == Terminated
}

// States returns the state of every UID that has a worker.
func (s *Workers) States() map[types.UID]State {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make(map[types.UID]State, len(s.workers))
	for uid, w := range s.workers {
		out[uid] = w.status.state()
	}
	return out
}

// IsAdopted reports whether the pod ran when it was found and no source has
// submitted or removed it yet.
func (s *Workers) IsAdopted(uid types.UID) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	w := s.workers[uid]
	return w != nil && w.status.ranBefore && w.status.state() == Adopted
}

// AdoptedPods returns the adopted pods that no source has submitted or removed.
func (s *Workers) AdoptedPods() []pod.Ref {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []pod.Ref
	for _, w := range s.workers {
		if w.status.state() == Adopted {
			out = append(out, w.status.ref)
		}
	}
	return out
}

// ensure returns the worker of a UID and starts it if there is none. The caller
// holds the lock.
func (s *Workers) ensure(ctx context.Context, ref pod.Ref) *worker {
	if w := s.workers[ref.UID]; w != nil {
		return w
	}
	w := &worker{status: newPodSyncStatus(ref), wake: wait.NewWakeup(), events: wait.NewWakeup()}
	s.workers[ref.UID] = w
	s.enable(ref.UID, w.events)
	s.queue(w)
	s.wg.Go(func() { s.run(ctx, w) })
	return w
}

// queue appends the worker to the queue for its full name. The caller holds the
// lock.
func (s *Workers) queue(w *worker) {
	name := w.status.ref.FullName()
	s.names[name] = append(s.names[name], w.status.ref.UID)
	w.status.holdsName = len(s.names[name]) == 1
}

// release removes the worker from the queue for its full name and wakes the
// next one. The caller holds the lock.
func (s *Workers) release(w *worker) {
	name := w.status.ref.FullName()
	line := slices.DeleteFunc(s.names[name], func(uid types.UID) bool { return uid == w.status.ref.UID })
	w.status.holdsName = false
	if len(line) == 0 {
		delete(s.names, name)
		return
	}
	s.names[name] = line
	if next := s.workers[line[0]]; next != nil && !next.status.holdsName {
		next.status.holdsName = true
		next.wake.Set()
	}
}

// stop begins or shortens a termination, which cancels a running Sync or Terminate.
// It reports whether it did. The caller holds the lock.
func (s *Workers) stop(w *worker, grace time.Duration) bool {
	if !w.status.terminate(s.now(), grace) {
		return false
	}
	if w.cancel != nil {
		w.cancel(errTerminating)
	}
	w.wake.Set()
	return true
}

// retryAfter returns the wait after failure n; n counts from 0.
func retryAfter(n int) time.Duration {
	d := min(retryFirst<<min(n, 6), retryMax)
	return d + rand.N(d/5)
}
