package podworker

import (
	"errors"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/tinylet/tinylet/agent/pod"
)

// State is where a pod is in its life; see the package's drawing.
type State uint8

// The states in the order in which a pod can pass through them.
const (
	Adopted State = iota
	Waiting
	Syncing
	Terminating
	Terminated
)

func (s State) String() string {
	switch s {
	case Adopted:
		return "adopted"
	case Waiting:
		return "waiting"
	case Syncing:
		return "syncing"
	case Terminating:
		return "terminating"
	case Terminated:
		return "terminated"
	}
	return "invalid"
}

// errTerminating is the cause with which a running sync or a running
// termination is cancelled.
var errTerminating = errors.New("pod is terminating")

// life is what is known of one life of a UID. The state is derived from
// these facts, never stored; each fact changes once, or only shrinks.
type life struct {
	ref pod.Ref
	pod *v1.Pod // nil while only the runtime knows the pod

	holdsName bool // the full name is ours
	begun     bool // Sync was called, or may have been
	stopping  bool // no way back
	removed   bool // no source wants the pod; forget it when it is terminated
	stopped   bool // no container runs any more
	finished  bool // Finish ran

	// synced is the version that Sync was last called with.
	synced *v1.Pod
	// found says that something of the pod ran before it was asked for.
	found bool
	// promised is the grace period that an adopted pod was started with.
	promised time.Duration
	// deadline is when the grace period ends; set when stopping becomes true.
	deadline time.Time
	// grace is the shortest period that anyone asked for.
	grace time.Duration
	// next is the same UID wanted again after it was removed.
	next *v1.Pod
}

func newLife(ref pod.Ref) life {
	return life{ref: ref, promised: v1.DefaultTerminationGracePeriodSeconds * time.Second}
}

// ownGrace is the grace period that the pod was promised.
func (l *life) ownGrace() time.Duration {
	if l.pod != nil {
		return pod.GracePeriod(l.pod)
	}
	return l.promised
}

// state derives the state; holdsName and begun matter only before stopping.
func (l *life) state() State {
	switch {
	case l.finished:
		return Terminated
	case l.stopping:
		return Terminating
	case l.pod == nil:
		return Adopted
	case !l.begun:
		return Waiting
	default:
		return Syncing
	}
}

// stop begins or shortens the termination and says whether anything changed.
func (l *life) stop(now time.Time, grace time.Duration) bool {
	grace = max(grace, 0)
	if !l.stopping {
		l.stopping, l.grace, l.deadline = true, grace, now.Add(grace)
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

// remaining is what is left of the grace period. A second is always left to
// a pod that was promised any, so that a retry is no instant kill.
func (l *life) remaining(now time.Time) time.Duration {
	if l.grace == 0 {
		return 0
	}
	return max(l.deadline.Sub(now), min(l.grace, time.Second))
}
