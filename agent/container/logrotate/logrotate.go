// Package logrotate keeps the containers' logs from filling the disk: it
// owns when a log is rotated, the rotated files beside it and their names,
// which are the kubelet's (pkg/kubelet/logs/container_log_manager.go):
//
//	0.log                       the runtime writes here
//	0.log.20260102-150405       rotated last, plain, for readers that lag
//	0.log.20260102-140000.gz    rotated before
//
// It may be killed and the power may fail at any step: no line that was on
// the disk is lost by it, and the next rotation tidies up. Names that are
// not of this form are left alone.
//
// A log at rest costs nothing: the kernel tells when it is written to again.
package logrotate

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"
)

// Reopener is the part of the container runtime that rotation needs. After
// ReopenContainerLog the container writes to a new file of the old name.
type Reopener interface {
	ReopenContainerLog(ctx context.Context, containerID string) error
}

// Log is the log of one running container.
type Log struct {
	// ID is the container's.
	ID string
	// Path is the file that the runtime writes to, absolute.
	Path string
}

// Config is what a Rotator needs.
type Config struct {
	Reopen Reopener
	// Containers lists the logs of the containers that run. It is called from
	// Run whenever a log is due and after Notify; it must not block for long.
	Containers func() []Log
	// Looked is called after each look at the logs that are due: for checks that
	// are due whenever the agent is awake. It must not block. nil is none.
	Looked func()
	// Notify fills a slot after each change of what Containers lists, until
	// cancel is called. nil never does: a container that has started is then
	// found within five minutes.
	Notify func(slot chan<- struct{}) (cancel func())
	// MaxSize in bytes is from when on a log is rotated; negative is never.
	MaxSize int64
	// MaxFiles, 2 or more, is how many files of one container there may be.
	// Fewer are kept where they have grown far larger than MaxSize before they
	// could be rotated: all of them but the one that is written to take twice
	// MaxSize*MaxFiles at most, or there is one.
	MaxFiles int
	// Workers is how many logs are rotated at once; 0 is one.
	Workers int
	// Interval is the shortest time between two looks at one log; 0 is 10 s. A
	// log that reaches MaxSize in less is looked at as soon as that, but once a
	// second at most.
	Interval time.Duration
	Log      *slog.Logger
}

// Limits of the schedule.
const (
	defaultInterval = 10 * time.Second
	// longest is the longest time between two looks, which catches what no
	// event told of.
	longest = 5 * time.Minute
	// rate in bytes per second is how fast a log is expected to grow at most,
	// until it was seen to grow faster.
	rate = 1 << 20
	// shortest is the shortest time between two looks at a log that grows
	// faster.
	shortest = time.Second
)

// Rotator rotates logs. Its methods are safe for concurrent use; Run may run
// once at a time.
type Rotator struct {
	cfg     Config
	changed chan struct{}
	growth  func() (growth, error) // replaced in tests

	logs map[string]*state // by path; Run's own

	mu   sync.Mutex
	busy map[string]chan struct{} // by path; closed when done
}

// New checks the configuration. It starts nothing.
func New(c Config) (*Rotator, error) {
	if c.Reopen == nil || c.Containers == nil || c.Log == nil {
		return nil, errors.New("log rotation: Reopen, Containers and Log are required")
	}
	if c.MaxFiles < 2 || c.MaxSize == 0 {
		return nil, fmt.Errorf("log rotation: %d files of %d bytes: it must be 2 or more, and not of 0 bytes", c.MaxFiles, c.MaxSize)
	}
	c.Workers = max(c.Workers, 1)
	if c.Interval <= 0 {
		c.Interval = defaultInterval
	}
	return &Rotator{
		cfg: c, changed: make(chan struct{}, 1), growth: newInotify,
		logs: map[string]*state{}, busy: map[string]chan struct{}{},
	}, nil
}

// Run rotates what grows too large until ctx ends, then returns nil when all
// that it started is done. What goes wrong is logged and tried again, less
// and less often.
func (r *Rotator) Run(ctx context.Context) error {
	if r.cfg.MaxSize < 0 {
		<-ctx.Done()
		return nil
	}
	events, err := r.growth()
	if err != nil {
		r.cfg.Log.Warn("logs at rest are looked at again and again: the kernel does not tell of changes", "error", err)
		events = blind{}
	}
	defer events.close()
	if r.cfg.Notify != nil {
		defer r.cfg.Notify(r.changed)()
	}
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-timer.C:
		case <-r.changed:
		case <-events.grown():
			r.wake(events.take(), time.Now())
		}
		timer.Reset(r.look(ctx, events, time.Now()))
		if r.cfg.Looked != nil {
			r.cfg.Looked()
		}
	}
}

// Rotate rotates a log now, whatever its size, and waits for it. The
// container must run. Where the log is gone the runtime is only asked to
// write a new one. If the runtime does not, the log has its name again.
// A file that could not be compressed stays as it is, and is in the error.
func (r *Rotator) Rotate(ctx context.Context, containerID, path string) error {
	done, err := r.claim(ctx, path)
	if err != nil {
		return err
	}
	defer done()
	if err := r.rotate(ctx, containerID, path); err != nil {
		return fmt.Errorf("rotate log %q: %w", path, err)
	}
	return nil
}

// claim waits until nobody else rotates the log at path.
func (r *Rotator) claim(ctx context.Context, path string) (done func(), err error) {
	mine := make(chan struct{})
	for {
		r.mu.Lock()
		other, taken := r.busy[path]
		if !taken {
			r.busy[path] = mine
		}
		r.mu.Unlock()
		if !taken {
			break
		}
		select {
		case <-other:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
	return func() {
		r.mu.Lock()
		delete(r.busy, path)
		r.mu.Unlock()
		close(mine)
	}, nil
}
