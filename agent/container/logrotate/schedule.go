package logrotate

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"sync"
	"time"
)

// state is the state of one log between two checks.
type state struct {
	id       string
	due      time.Time
	size     int64 // in bytes at the last check; -1 if not checked since the start or a rotation
	failures int   // consecutive
	listed   bool  // in the current listing

	growthRate   int64     // bytes per second, as last measured
	measuredAt   time.Time // when the log had measuredSize bytes; zero is never
	measuredSize int64
}

// measure updates the growth rate from the size of a log. A higher earlier
// rate is only halved each time, so that a log is still checked often after a
// pause.
func (s *state) measure(size int64, now time.Time) {
	elapsed := now.Sub(s.measuredAt)
	if !s.measuredAt.IsZero() {
		if elapsed < minCheckInterval/4 {
			return // too short to measure
		}
		growth := size - s.measuredSize
		if growth < 0 {
			growth = size // it was rotated by another process
		}
		s.growthRate = max(int64(float64(growth)/elapsed.Seconds()), s.growthRate/2)
	}
	s.measureFrom(size, now)
}

func (s *state) measureFrom(size int64, now time.Time) {
	s.measuredSize, s.measuredAt = size, now
}

// untilCheck returns the time until the next check of a log: until it could reach
// MaxSize. grows is its measured growth in bytes per second. A log that would
// reach MaxSize in less than an interval is checked more often.
func (c *Config) untilCheck(size, grows int64) time.Duration {
	left := max(c.MaxSize-max(size, 0), 0)
	usual := c.bound(time.Duration(min(left/assumedRate, int64(maxCheckInterval/time.Second))) * time.Second)
	if grows <= assumedRate && float64(grows)*c.Interval.Seconds() <= float64(c.MaxSize) {
		return usual
	}
	reached := time.Duration(min(float64(left)/float64(grows), maxCheckInterval.Seconds()) * float64(time.Second))
	return min(max(reached, minCheckInterval), usual)
}

// bound limits d to between Interval and maxCheckInterval. A longer Interval takes
// precedence.
func (c *Config) bound(d time.Duration) time.Duration {
	if d > maxCheckInterval || d < 0 {
		d = maxCheckInterval
	}
	return max(d, c.Interval)
}

// makeDue makes idle logs due again; nil is all logs.
func (r *Rotator) makeDue(paths []string, now time.Time) {
	for path, s := range r.logs {
		if paths != nil && !slices.Contains(paths, path) {
			continue
		}
		if at := now.Add(r.cfg.untilCheck(s.size, s.growthRate)); s.failures == 0 && at.Before(s.due) {
			s.due = at
			s.measureFrom(max(s.size, 0), now) // it was idle until now
		}
	}
}

// check updates the list of logs, checks those that are due, and rotates those that are too
// large. It waits for the rotations and returns the time until the next check.
func (r *Rotator) check(ctx context.Context, events changeNotifier, now time.Time) time.Duration {
	r.list(events, now)
	large := make(chan string)
	var wg sync.WaitGroup
	var workers int
	for path, s := range r.logs {
		// Logs that are due soon are checked too, to wake up less often.
		if s.due.Sub(now) > r.cfg.Interval/4 {
			continue
		}
		if !r.inspect(ctx, events, path, s, now) {
			continue
		}
		if workers < r.cfg.Workers {
			workers++
			wg.Go(func() {
				for path := range large {
					r.attempt(ctx, path, r.logs[path], now)
				}
			})
		}
		large <- path
	}
	close(large)
	wg.Wait()
	next := now.Add(maxCheckInterval)
	for _, s := range r.logs {
		if s.due.Before(next) {
			next = s.due
		}
	}
	return max(time.Until(next), 0)
}

// list updates the logs from the running containers.
func (r *Rotator) list(events changeNotifier, now time.Time) {
	for _, l := range r.cfg.Containers() {
		s := r.logs[l.Path]
		if s == nil || s.id != l.ID {
			s = &state{id: l.ID, due: now, size: -1}
			r.logs[l.Path] = s
		}
		s.listed = true
	}
	for path, s := range r.logs {
		if !s.listed {
			events.unwatch(path)
			delete(r.logs, path)
		}
		s.listed = false
	}
}

// inspect checks one log and reports whether it must be rotated. If not, the log is due
// again when it could have become too large. If it has not grown since the last check, the
// next check follows a notification of the kernel, or maxCheckInterval.
func (r *Rotator) inspect(ctx context.Context, events changeNotifier, path string, s *state, now time.Time) (large bool) {
	size, err := sizeOf(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		// The agent was killed between renaming and reopening. The rotation makes the
		// runtime reopen the log.
		return true
	case err != nil:
		r.scheduleRetry(path, s, now, err)
		return false
	}
	s.measure(size, now)
	if size >= r.cfg.MaxSize {
		return true
	}
	rests := size == s.size
	s.size, s.failures = size, 0
	s.due = now.Add(r.cfg.untilCheck(size, s.growthRate))
	if !rests || !events.watch(path) || ctx.Err() != nil {
		return false
	}
	// Checked again, because it may have grown before the watch started.
	if again, err := sizeOf(path); err == nil && again == size {
		s.due = now.Add(maxCheckInterval)
	}
	return false
}

func (r *Rotator) attempt(ctx context.Context, path string, s *state, now time.Time) {
	if err := r.rotate(ctx, s.id, path); err != nil {
		if ctx.Err() == nil {
			r.scheduleRetry(path, s, now, fmt.Errorf("rotate log %q: %w", path, err))
		}
		return
	}
	s.size, s.failures = -1, 0
	s.measureFrom(0, now)
	s.due = now.Add(r.cfg.untilCheck(0, s.growthRate))
}

// scheduleRetry logs an error and schedules a retry after Interval, doubled for each
// consecutive failure, up to maxCheckInterval.
func (r *Rotator) scheduleRetry(path string, s *state, now time.Time, err error) {
	s.failures++
	wait := r.cfg.bound(r.cfg.Interval << min(s.failures-1, 10))
	s.due = now.Add(wait)
	r.cfg.Log.Warn("cannot rotate container log", "containerID", s.id, "log", path, "error", err, "retryIn", wait)
}

func sizeOf(path string) (int64, error) {
	info, err := os.Lstat(path)
	if err != nil {
		return 0, err
	}
	if !info.Mode().IsRegular() {
		return 0, errNotRegular
	}
	return info.Size(), nil
}

var errNotRegular = errors.New("not a regular file")
