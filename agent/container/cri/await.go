package cri

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"sync"
	"syscall"

	"github.com/tinylet/tinylet/agent/store/filewatch"
)

// socketWatcher detects at once that an absent runtime listens. gRPC alone retries
// after up to a second, which a booting board would spend idle. While there is
// a connection, it holds no resources.
type socketWatcher struct {
	path  string // the socket's
	retry func() // makes gRPC retry at once

	mu     sync.Mutex
	stop   context.CancelFunc // nil while no watch runs
	done   chan struct{}      // closed when the watch has ended
	closed bool
}

// onDial handles the result of an attempt to connect.
func (a *socketWatcher) onDial(err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case err == nil:
		a.stopWatch()
	case a.stop == nil && !a.closed && (errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ECONNREFUSED)):
		ctx, cancel := context.WithCancel(context.Background())
		over := make(chan struct{})
		a.stop, a.done = cancel, over
		go func() {
			defer close(over)
			a.watch(ctx)
		}()
	}
}

// close ends the watch for good, and waits until it has ended.
func (a *socketWatcher) close() {
	a.mu.Lock()
	a.stopWatch()
	a.closed = true
	over := a.done
	a.mu.Unlock()
	if over != nil {
		<-over
	}
}

// stopWatch ends the watch. The caller holds a.mu.
func (a *socketWatcher) stopWatch() {
	if a.stop != nil {
		a.stop()
		a.stop = nil
	}
}

// watch calls retry whenever the socket is created, until ctx ends. If it cannot be
// watched, gRPC's own retries remain.
func (a *socketWatcher) watch(ctx context.Context) {
	filewatch.Follow(ctx, filewatch.Following{
		Paths: func() []string { return []string{a.path} },
		Changed: func() {
			if _, err := os.Lstat(a.path); err == nil {
				a.retry() // the socket was created, or its process is dead
			}
		},
		Failed: func(error) {},
	})
}
