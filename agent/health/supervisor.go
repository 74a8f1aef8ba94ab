package health

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/tinylet/tinylet/agent/wait"
)

// Task is one concurrent activity of the agent, which runs until its context ends. A task
// that returns before that is run again.
type Task struct {
	// Name is unique. Logs and health checks use it.
	Name string
	Run  func(ctx context.Context) error
	// Once means that the task is complete when it returns nil.
	Once bool
}

// Stage is a group of tasks that start and stop together.
type Stage struct {
	Name  string
	Tasks []Task
}

// Wait before a task that returned early runs again: the first and the longest one. A task
// that has run for stableAfter starts with the first wait again.
const (
	firstRestart   = time.Second
	longestRestart = time.Minute
	stableAfter    = 5 * time.Minute
)

// errReturnedEarly is the error of a task that returned nil before its context ended.
var errReturnedEarly = errors.New("no error")

// Supervisor runs tasks, and records which of them returned early. Its methods are safe for
// concurrent use.
type Supervisor struct {
	log *slog.Logger

	mu      sync.Mutex
	failing map[string]failure // by the names of tasks; nil while there is none
}

// NewSupervisor returns a Supervisor without tasks.
func NewSupervisor(log *slog.Logger) *Supervisor { return &Supervisor{log: log} }

// failure is how a task returned early.
type failure struct {
	times   int // in a row
	err     error
	waiting bool      // the task does not run
	since   time.Time // start of the current run
}

// over reports whether the task has run for stableAfter since its restart.
func (f failure) over(now time.Time) bool { return !f.waiting && now.Sub(f.since) >= stableAfter }

// Run runs the task until ctx ends or a task with Once is complete. It runs a task that
// returns early again after a wait.
func (s *Supervisor) Run(ctx context.Context, t *Task) {
	for times := 0; ; {
		began := time.Now()
		err := t.Run(ctx)
		if ctx.Err() != nil {
			if !endedBy(ctx, err) {
				s.log.Warn("task failed at shutdown", "task", t.Name, "error", err)
			}
			return
		}
		if err == nil && t.Once {
			s.record(t.Name, failure{})
			return
		}
		if err == nil {
			err = errReturnedEarly
		}
		if time.Since(began) >= stableAfter {
			times = 0
		}
		pause := min(firstRestart<<min(times, 10), longestRestart)
		times++
		s.record(t.Name, failure{times: times, err: err, waiting: true})
		s.log.Log(ctx, failureLevel(times), "task returned early, restart it", "task", t.Name, "error", err, "times", times, "wait", pause)
		if !wait.Pause(ctx, pause) {
			return
		}
		s.record(t.Name, failure{times: times, err: err, since: time.Now()})
	}
}

// RunStages starts the tasks of all stages, in order, without waiting between stages. When
// ctx ends it stops the stages in reverse: the tasks of a stage are cancelled when those of the
// later stages have returned. It returns when all tasks have returned.
func (s *Supervisor) RunStages(ctx context.Context, stages []Stage) {
	running := make([]func(cause error), len(stages)) // stop a stage, and wait for it
	for i, stage := range stages {
		stageCtx, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
		var wg sync.WaitGroup
		for _, t := range stage.Tasks {
			wg.Go(func() { s.Run(stageCtx, &t) })
		}
		running[i] = func(cause error) {
			cancel(cause)
			wg.Wait()
		}
	}
	<-ctx.Done()
	for _, stop := range slices.Backward(running) {
		stop(context.Cause(ctx))
	}
}

// endedBy reports whether err means no more than that ctx has ended.
func endedBy(ctx context.Context, err error) bool {
	return err == nil || errors.Is(err, ctx.Err()) || errors.Is(err, context.Cause(ctx))
}

// failureLevel is the level of the n-th failure in a row: an error for the first, second,
// fourth, eighth and so on, so that a task that fails for days does not fill the log.
func failureLevel(n int) slog.Level {
	if n&(n-1) == 0 {
		return slog.LevelError
	}
	return slog.LevelDebug
}

// record stores the state of a task; the zero failure means that it is complete. It drops
// failures that are over.
func (s *Supervisor) record(name string, f failure) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	maps.DeleteFunc(s.failing, func(_ string, f failure) bool { return f.over(now) })
	if f.times == 0 {
		delete(s.failing, name)
		return
	}
	if s.failing == nil {
		s.failing = make(map[string]failure)
	}
	s.failing[name] = f
}

// Healthy returns an error while a task waits to be run again, or has returned early more
// than once and has not run for 5 minutes since. It changes nothing.
func (s *Supervisor) Healthy(now time.Time) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var failing []string
	for _, name := range slices.Sorted(maps.Keys(s.failing)) {
		f := s.failing[name]
		switch {
		case f.waiting:
			failing = append(failing, fmt.Sprintf("%s does not run (ended early %s): %v", name, count(f.times), f.err))
		case f.times > 1 && !f.over(now):
			failing = append(failing, fmt.Sprintf("%s was restarted (ended early %s): %v", name, count(f.times), f.err))
		}
	}
	if len(failing) == 0 {
		return nil
	}
	return errors.New(strings.Join(failing, "; "))
}

func count(times int) string {
	if times == 1 {
		return "once"
	}
	return fmt.Sprintf("%d times", times)
}
