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

// socketWatcher makes gRPC connect as soon as the socket of an absent runtime is created.
// gRPC alone retries after up to a second, which delays the start of a board. While there
// is a connection, socketWatcher has no watch and no goroutine.
type socketWatcher struct {
	path  string // the socket's
	retry func() // makes gRPC retry at once

	mu      sync.Mutex
	stop    context.CancelFunc // nil while no watch runs
	watches sync.WaitGroup
	closed  bool
}

// onDial handles the result of an attempt to connect. It starts the watch if the socket
// does not exist or nothing listens on it, and ends the watch after a success.
func (a *socketWatcher) onDial(err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case err == nil:
		a.stopWatch()
	case a.stop == nil && !a.closed && (errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ECONNREFUSED)):
		ctx, cancel := context.WithCancel(context.Background())
		a.stop = cancel
		a.watches.Go(func() { a.watch(ctx) })
	}
}

// close ends the watch and waits for its end. onDial starts none afterwards.
func (a *socketWatcher) close() {
	a.mu.Lock()
	a.stopWatch()
	a.closed = true
	a.mu.Unlock()
	a.watches.Wait()
}

// stopWatch ends the watch without waiting for it. The caller holds a.mu.
func (a *socketWatcher) stopWatch() {
	if a.stop != nil {
		a.stop()
		a.stop = nil
	}
}

// watch calls retry when the socket is created or replaced, until ctx ends. If the path
// cannot be watched, gRPC's own retries remain.
func (a *socketWatcher) watch(ctx context.Context) {
	filewatch.Follow(ctx, filewatch.Following{
		Paths: func() []string { return []string{a.path} },
		Changed: func() {
			if _, err := os.Lstat(a.path); err == nil {
				a.retry() // the socket exists; its process may be dead
			}
		},
		Failed: func(error) {},
	})
}
