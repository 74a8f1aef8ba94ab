package agent

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
)

// task is one thing that the agent does beside all others until its context
// ends. A task that returns before that is run again.
type task struct {
	// name is unique, and what logs and health call the task by.
	name string
	run  func(ctx context.Context) error
	// once says that a task has done its work when it returns nil.
	once bool
}

// Waits before a task that ended early is run again: the first and the longest
// one. A task that has run for wellAfter begins with the first wait again.
const (
	firstRestart   = time.Second
	longestRestart = time.Minute
	wellAfter      = 5 * time.Minute
)

// errEndedEarly is for a task that returned nil and should not have.
var errEndedEarly = errors.New("it returned before the agent ended")

// supervisor runs tasks, and knows which of them do not run as they should.
type supervisor struct {
	log *slog.Logger

	mu      sync.Mutex
	failing map[string]failure // by the names of tasks; nil while there is none
}

// failure is how a task ended early.
type failure struct {
	times   int // in a row
	err     error
	waiting bool      // the task does not run
	since   time.Time // this run's begin
}

// over reports whether the task runs, and has run well since.
func (f failure) over(now time.Time) bool { return !f.waiting && now.Sub(f.since) >= wellAfter }

// run runs the task, again and again if it must, until ctx ends.
func (s *supervisor) run(ctx context.Context, t *task) {
	for times := 0; ; {
		began := time.Now()
		err := t.run(ctx)
		if ctx.Err() != nil {
			if !endedBy(ctx, err) {
				s.log.Warn("task failed while it ended", "task", t.name, "error", err)
			}
			return
		}
		if err == nil && t.once {
			s.note(t.name, failure{})
			return
		}
		if err == nil {
			err = errEndedEarly
		}
		if time.Since(began) >= wellAfter {
			times = 0
		}
		wait := min(firstRestart<<min(times, 10), longestRestart)
		times++
		s.note(t.name, failure{times: times, err: err, waiting: true})
		s.log.Log(ctx, loud(times), "task ended early, restarting it", "task", t.name, "error", err, "times", times, "wait", wait)
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-timer.C:
		}
		s.note(t.name, failure{times: times, err: err, since: time.Now()})
	}
}

// endedBy reports whether err says no more than that ctx has ended.
func endedBy(ctx context.Context, err error) bool {
	return err == nil || errors.Is(err, ctx.Err()) || errors.Is(err, context.Cause(ctx))
}

// loud is the level of the n-th failure in a row: an error for the first,
// second, fourth, eighth and so on, so that a task that fails for days does not
// fill the log.
func loud(n int) slog.Level {
	if n&(n-1) == 0 {
		return slog.LevelError
	}
	return slog.LevelDebug
}

// note remembers how a task does; the zero failure is that it has no more to do.
// Failures that are over are forgotten.
func (s *supervisor) note(name string, f failure) {
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

// Healthy fails while a task waits to be run again, or has ended early more
// than once and not run well since. It changes nothing.
func (s *supervisor) Healthy(now time.Time) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var bad []string
	for _, name := range slices.Sorted(maps.Keys(s.failing)) {
		f := s.failing[name]
		switch {
		case f.waiting:
			bad = append(bad, fmt.Sprintf("%s does not run (ended early %s): %v", name, count(f.times), f.err))
		case f.times > 1 && !f.over(now):
			bad = append(bad, fmt.Sprintf("%s was restarted (ended early %s): %v", name, count(f.times), f.err))
		}
	}
	if len(bad) == 0 {
		return nil
	}
	return errors.New(strings.Join(bad, "; "))
}

func count(times int) string {
	if times == 1 {
		return "once"
	}
	return fmt.Sprintf("%d times", times)
}

// tasks is everything that the agent runs, beside what ends it (whenTold).
func (p *parts) tasks() []task {
	all := []task{{name: "local-api", run: p.local.Run}}
	all = append(all, p.sources...)
	all = append(all,
		task{name: "pleg", run: p.pleg.Run}, task{name: "sync-loop", run: p.loop.Run},
		task{name: "objects-folder", run: p.objects.Run}, task{name: "probes", run: p.probes.Run},
		task{name: "log-rotation", run: p.rotator.Run}, task{name: "image-collection", run: p.images.Run},
		task{name: "node-shutdown", run: p.shutdown.Run},
		task{name: "sessions", run: func(ctx context.Context) error { p.streams.Run(ctx); return nil }})
	all = append(all, p.evictions.tasks()...)
	if p.preload != nil {
		all = append(all, task{name: "image-archives", run: p.preload.Run})
	}
	if p.lost != nil {
		all = append(all, task{name: "lost-containers", run: p.lost.Run})
	}
	if p.poller != nil {
		all = append(all, task{name: "cgroup-events", run: p.poller.Run})
	}
	if p.cpus != nil {
		all = append(all, task{name: "cpus", run: p.cpus.Run})
	}
	if p.network != nil {
		all = append(all, task{name: "network", run: p.network.Run})
	}
	all = append(all, p.networkTasks...)
	if p.cluster != nil {
		all = append(all, p.cluster.tasks()...)
	}
	if p.nodeAPI != nil {
		all = append(all, p.nodeAPI.tasks()...)
	}
	if p.systemd != nil {
		all = append(all, task{name: "systemd", run: p.systemd.Run})
	}
	return all
}
