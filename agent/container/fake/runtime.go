// Package fake is an in-memory container runtime for tests. It behaves as
// containerd does behind CRI v1 (2.4, internal/cri/server). It simulates the
// states of sandboxes and containers, processes that exit by themselves or on
// request of the test, images and pulls, the event stream, and failures: faults
// of single calls, lost answers, a runtime that is stopped, restarted or hung,
// and a reboot.
//
// It works inside a testing/synctest bubble: it waits on channels and timers
// only, and starts no goroutine but those of time.AfterFunc, and of
// ServeStreams if a test calls it.
package fake

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/opencontainers/go-digest"

	"github.com/tinylet/tinylet/agent/container"
)

// Config configures a fake; the zero value is usable.
type Config struct {
	// Timeout limits each call as a driver does; 0 means two minutes.
	Timeout time.Duration
	// WriteLogs makes containers write their output to their log files, in
	// CRI's format. Without it the fake touches no file.
	WriteLogs bool
	// ImageFs is the mount point that ImageFsInfo returns; "" is /dev/shm, a
	// filesystem that exists and stays empty.
	ImageFs string
}

// Runtime implements container.Runtime. It is safe for concurrent use.
type Runtime struct {
	timeout   time.Duration
	writeLogs bool
	imageFs   string

	mu         sync.Mutex
	serial     int
	sandboxes  map[string]*sandbox
	containers map[string]*process
	images     map[string]*image
	registry   map[string]*Pull
	programs   map[string]Program
	execs      map[string]Exec
	store      store
	streams    *streams // nil unless they are served

	calls  []Call
	faults []*fault

	down   bool
	hung   chan struct{} // closed by Resume; nil unless hung
	broken chan struct{} // closed when connections break; then replaced

	subscribers map[*subscription]struct{}
	dropEvents  int  // number of events still to drop
	bareEvents  bool // events lack the pod's status
}

var _ container.Runtime = (*Runtime)(nil)

// New returns a running, empty runtime.
func New(c Config) *Runtime {
	if c.Timeout <= 0 {
		c.Timeout = 2 * time.Minute
	}
	return &Runtime{
		timeout:    c.Timeout,
		writeLogs:  c.WriteLogs,
		imageFs:    cmp.Or(c.ImageFs, "/dev/shm"),
		execs:      make(map[string]Exec),
		sandboxes:  make(map[string]*sandbox),
		containers: make(map[string]*process),
		images:     make(map[string]*image),
		registry:   make(map[string]*Pull),
		programs:   make(map[string]Program),
		store: store{
			blobs:   make(map[digest.Digest]container.Blob),
			partial: make(map[digest.Digest][]byte),
			targets: make(map[string]digest.Digest),
		},
		broken:      make(chan struct{}),
		subscribers: make(map[*subscription]struct{}),
	}
}

// do performs one call: it records the call, applies faults and outages, and
// calls effect. With a limit of 0 only ctx limits the time.
func (r *Runtime) do(ctx context.Context, method, subject string, limit time.Duration, effect func(context.Context) error) error {
	limited := ctx
	if limit > 0 {
		var cancel context.CancelFunc
		limited, cancel = context.WithTimeout(ctx, limit)
		defer cancel()
	}
	n := r.recordCall(method, subject)
	err := r.perform(limited, method, subject, effect)
	if err != nil {
		err = fmt.Errorf("%s %q: %w", method, subject, callError(ctx, limited, err))
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.calls[n].Err = err
	return err
}

// doLocked is do for an effect that needs the lock and does not wait.
func (r *Runtime) doLocked(ctx context.Context, method, subject string, limit time.Duration, effect func() error) error {
	return r.do(ctx, method, subject, limit, func(context.Context) error {
		r.mu.Lock()
		defer r.mu.Unlock()
		return effect()
	})
}

// query is doLocked for a call with a result. With an error the result is empty.
func query[T any](ctx context.Context, r *Runtime, method, subject string, limit time.Duration, effect func() (T, error)) (T, error) {
	var result, none T
	err := r.doLocked(ctx, method, subject, limit, func() (err error) {
		result, err = effect()
		return err
	})
	if err != nil {
		return none, err
	}
	return result, nil
}

func (r *Runtime) perform(ctx context.Context, method, subject string, effect func(context.Context) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	f := r.matchFault(method, subject)
	broken, err := r.waitWhileHung(ctx)
	if err != nil {
		return err
	}
	if f != nil && !f.Late {
		if err := f.apply(ctx, broken); err != nil {
			return err
		}
	}
	err = effect(ctx)
	if f != nil && f.Late {
		if err := f.apply(ctx, broken); err != nil {
			return err
		}
	}
	select {
	case <-broken: // the runtime went away before it could answer
		return container.ErrUnavailable
	default:
	}
	return err
}

// waitWhileHung waits while the runtime hangs. The channel that it returns is closed
// when the connection breaks.
func (r *Runtime) waitWhileHung(ctx context.Context) (broken <-chan struct{}, err error) {
	for {
		r.mu.Lock()
		down, hung, broken := r.down, r.hung, r.broken
		r.mu.Unlock()
		if down {
			return nil, container.ErrUnavailable
		}
		if hung == nil {
			return broken, nil
		}
		select {
		case <-hung:
		case <-broken:
			return nil, container.ErrUnavailable
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// callError distinguishes the end of the caller's context from the driver's
// timeout.
func callError(caller, limited context.Context, err error) error {
	if limited.Err() == nil || !errors.Is(err, limited.Err()) {
		return err
	}
	if cause := caller.Err(); cause != nil {
		if errors.Is(cause, context.DeadlineExceeded) {
			return fmt.Errorf("%w: %w", container.ErrTimeout, cause)
		}
		return cause
	}
	return container.ErrTimeout
}

// nextID returns the ID of a new object; the caller holds the lock.
func (r *Runtime) nextID(kind string) string {
	r.serial++
	return fmt.Sprintf("%s-%d", kind, r.serial)
}
