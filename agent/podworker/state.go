package podworker

import (
	"context"
	"errors"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/tinylet/tinylet/agent/health"
	"github.com/tinylet/tinylet/agent/pod"
)

// State is the state of a pod's worker; see the diagram in the package comment.
type State uint8

// The states, in the order in which a pod can pass through them.
const (
	Adopted State = iota
	Waiting
	Syncing
	Terminating
	Terminated
)

func (s State) String() string {
	return [...]string{"adopted", "waiting", "syncing", "terminating", "terminated"}[s]
}

// errTerminating is the cancellation cause of a sync or a termination that a
// new or shorter termination interrupts.
var errTerminating = errors.New("pod is terminating")

// podSyncStatus is the state of one pod in its worker, from its arrival until it is
// forgotten. The State is derived from these fields and never stored. The booleans
// from syncStarted to finished are set once; deadline and grace only shrink.
type podSyncStatus struct {
	ref pod.Ref
	pod *v1.Pod // nil for a pod that only the runtime has

	holdsName   bool // first in the queue for its full name
	syncStarted bool // a sync has begun
	terminating bool // the termination has begun; it is final
	removed     bool // no source has the pod; forget it when it is terminated
	stopped     bool // Terminate returned nil
	finished    bool // Finish ran

	// synced is the version of the pod that Sync was last called with.
	synced *v1.Pod
	// ranBefore means that the pod ran before a source submitted it.
	ranBefore bool
	// runtimeGrace is the grace period that an adopted pod was started with, or
	// Kubernetes' default if the runtime does not report it.
	runtimeGrace time.Duration
	// deadline is the end of the grace period; it is set when terminating becomes
	// true.
	deadline time.Time
	// grace is the shortest grace period that was requested.
	grace time.Duration
	// resubmitted is a pod of the same UID that was submitted after this one was
	// removed.
	resubmitted *v1.Pod
}

func newPodSyncStatus(ref pod.Ref) podSyncStatus {
	return podSyncStatus{ref: ref, runtimeGrace: v1.DefaultTerminationGracePeriodSeconds * time.Second}
}

// ownGrace returns the grace period of the pod's deletion or spec, or else the one
// that the runtime has recorded.
func (l *podSyncStatus) ownGrace() time.Duration {
	if l.pod != nil {
		return pod.TerminationGracePeriod(l.pod)
	}
	return l.runtimeGrace
}

// state derives the state; pod and syncStarted matter only before the termination.
func (l *podSyncStatus) state() State {
	switch {
	case l.finished:
		return Terminated
	case l.terminating:
		return Terminating
	case l.pod == nil:
		return Adopted
	case !l.syncStarted:
		return Waiting
	default:
		return Syncing
	}
}

// terminate begins or shortens the termination and reports whether anything changed.
func (l *podSyncStatus) terminate(now time.Time, grace time.Duration) bool {
	grace = max(grace, 0)
	if !l.terminating {
		l.terminating, l.grace, l.deadline = true, grace, now.Add(grace)
		return true
	}
	if l.stopped || grace >= l.grace {
		return false
	}
	l.grace = grace
	if d := now.Add(grace); d.Before(l.deadline) {
		l.deadline = d
		return true
	}
	return false
}

// remaining returns the rest of the grace period. If the pod has a grace period
// at all, it returns at least a second (or the whole period, if that is
// shorter), so that a retry is not an instant kill.
func (l *podSyncStatus) remaining(now time.Time) time.Duration {
	if l.grace == 0 {
		return 0
	}
	return max(l.deadline.Sub(now), min(l.grace, time.Second))
}

// Unlocked returns nil as soon as the set's lock could be taken, and an error
// if the lock is held until ctx ends. No worker holds the lock during a long
// step, such as a call of the runtime.
func (s *Workers) Unlocked(ctx context.Context) error {
	return health.CheckLock(ctx, s.mu.TryLock, s.mu.Unlock)
}
