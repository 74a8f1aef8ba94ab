package podworker

import (
	"context"
	"errors"
	"log/slog"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/tinylet/tinylet/agent/metrics"
	"github.com/tinylet/tinylet/agent/pod"
)

// step is the next step of a worker: one snapshot of the pod's state.
type step struct {
	do    action
	ref   pod.Ref
	pod   *v1.Pod
	grace time.Duration
	// operation is the operation type in metrics; a step with "" is not counted.
	operation string
}

type action uint8

const (
	actIdle action = iota
	actSync
	actTerminate
	actFinish
	actForget
)

// run is the worker's goroutine. It waits for a wakeup, takes the next step and
// records the result. It returns when ctx ends or the pod is forgotten.
func (s *Workers) run(ctx context.Context, w *worker) {
	timer := time.NewTimer(0)
	timer.Stop()
	defer timer.Stop()
	failures := 0 // of the last kind of step, in a row
	last := actIdle
	for {
		select {
		case <-ctx.Done():
			return
		case <-w.wake:
		case <-w.events:
		case <-timer.C:
		}
		timer.Stop()
		next, stepCtx, cancel := s.begin(ctx, w)
		if next.do == actIdle {
			continue
		}
		if next.do != last {
			last, failures = next.do, 0
		}
		begun := s.now()
		result, err := s.do(stepCtx, next)
		cancel(nil)
		if ctx.Err() != nil {
			return
		}
		if next.operation != "" {
			var room [32]byte
			s.durations.Observe(metrics.AppendLabel(room[:0], "operation_type", next.operation), s.now().Sub(begun), nil)
		}
		over := s.recordResult(w, next, result, err)
		if next.do == actFinish && err == nil {
			s.cfg.OnTerminated(next.ref.UID)
		}
		if over {
			return
		}
		switch {
		case err != nil && errors.Is(context.Cause(stepCtx), errTerminating):
			failures = 0 // interrupted, not failed; the next step is due at once
			w.wake.Set()
		case err != nil:
			wait := retryAfter(failures)
			failures++
			s.cfg.Log.Log(ctx, failureLevel(failures), "pod step failed", "failures", failures, "pod", next.ref.String(), "podUID", next.ref.UID,
				"step", next.do.String(), "retryIn", wait.Round(time.Millisecond).String(), "error", err)
			timer.Reset(wait)
		default:
			failures = 0
			if next.do == actSync && !result.Done && !result.Next.IsZero() {
				timer.Reset(max(result.Next.Sub(s.now()), 0))
			}
		}
	}
}

// failureLevel returns the log level for the n-th failure in a row. The first, second,
// fourth, eighth ... failure is a warning, so that a pod that fails for days
// does not fill the flash storage.
func failureLevel(n int) slog.Level {
	if n&(n-1) == 0 {
		return slog.LevelWarn
	}
	return slog.LevelDebug
}

// begin selects the next step. It enables Wake for the pod again, and makes a Sync or
// Terminate cancellable.
func (s *Workers) begin(ctx context.Context, w *worker) (step, context.Context, context.CancelCauseFunc) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := &w.status
	s.enable(l.ref.UID, w.events)
	next := step{do: s.nextAction(l), ref: l.ref, pod: l.pod, grace: l.remaining(s.now())}
	if next.do == actIdle {
		return next, ctx, nil
	}
	next.operation = l.operation(next.do)
	if next.do == actSync {
		l.syncStarted, l.synced = true, l.pod
	}
	stepCtx, cancel := context.WithCancelCause(ctx)
	if next.do == actSync || next.do == actTerminate {
		w.cancel = cancel
	}
	return next, stepCtx, cancel
}

// nextAction derives the next step from the pod's state.
func (s *Workers) nextAction(l *podSyncStatus) action {
	switch {
	case l.finished && l.removed:
		return actForget
	case l.finished:
		return actIdle
	case l.stopped:
		return actFinish
	case l.terminating:
		return actTerminate
	case l.pod == nil || !l.holdsName || !s.runtimeKnown:
		return actIdle
	default:
		return actSync
	}
}

func (s *Workers) do(ctx context.Context, next step) (Result, error) {
	switch next.do {
	case actSync:
		return s.cfg.Syncer.Sync(ctx, next.pod)
	case actTerminate:
		return Result{}, s.cfg.Syncer.Terminate(ctx, next.ref, next.pod, next.grace)
	case actFinish:
		return Result{}, s.cfg.Syncer.Finish(ctx, next.ref, next.pod)
	case actForget:
		return Result{}, s.cfg.Syncer.Forget(ctx, next.ref)
	case actIdle:
	}
	return Result{}, nil
}

// recordResult records the result of a step and reports whether the pod is forgotten
// and its worker has to return.
func (s *Workers) recordResult(w *worker, done step, result Result, err error) (over bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	w.cancel = nil
	if err != nil {
		// Events that the failure itself causes must not shorten the backoff.
		s.disable(done.ref.UID)
		return false
	}
	l := &w.status
	switch done.do {
	case actSync:
		if !result.Done {
			return false
		}
		l.terminate(s.now(), pod.TerminationGracePeriod(done.pod))
	case actTerminate:
		l.stopped = true
	case actFinish:
		l.finished = true
		if w.evicted != nil {
			close(w.evicted)
			w.evicted = nil
		}
		s.release(w)
	case actForget:
		if l.resubmitted == nil {
			delete(s.workers, l.ref.UID)
			s.disable(l.ref.UID)
			return true
		}
		again := l.resubmitted
		w.status = newPodSyncStatus(pod.RefOf(again))
		w.status.pod = again
		s.queue(w)
	case actIdle:
	}
	w.wake.Set()
	return false
}

func (a action) String() string {
	return [...]string{"idle", "sync", "terminate", "finish", "forget"}[a]
}
