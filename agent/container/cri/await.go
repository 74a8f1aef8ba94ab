package cri

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"syscall"

	"github.com/fsnotify/fsnotify"
)

// arrival has a runtime that is not there noticed the moment it listens: gRPC
// alone tries again after up to a second, which a board that boots spends idle.
// Nothing of it is left while there is a connection.
type arrival struct {
	path  string // the socket's
	retry func() // has gRPC try again at once

	mu   sync.Mutex
	stop context.CancelFunc // nil: nobody watches
	over chan struct{}      // closed when the one who watched has ended
	shut bool
}

// dialled is told how each attempt to connect ended.
func (a *arrival) dialled(err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case err == nil:
		a.end()
	case a.stop == nil && !a.shut && (errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ECONNREFUSED)):
		ctx, cancel := context.WithCancel(context.Background())
		over := make(chan struct{})
		a.stop, a.over = cancel, over
		go func() {
			defer close(over)
			a.watch(ctx)
		}()
	}
}

// close ends the watching for good, and waits for it.
func (a *arrival) close() {
	a.mu.Lock()
	a.end()
	a.shut = true
	over := a.over
	a.mu.Unlock()
	if over != nil {
		<-over
	}
}

// end needs the lock.
func (a *arrival) end() {
	if a.stop != nil {
		a.stop()
		a.stop = nil
	}
}

// watch calls retry whenever the socket is made, until ctx ends. Where inotify
// does not work gRPC's own attempts have to do.
func (a *arrival) watch(ctx context.Context) {
	w, err := fsnotify.NewWatcher()
	if err != nil {
		return
	}
	defer w.Close()
	watched := ""
	for {
		if dir := nearest(filepath.Dir(a.path)); dir != watched {
			if watched != "" {
				_ = w.Remove(watched) // it may be gone
			}
			if watched = dir; w.Add(dir) != nil && nearest(dir) == dir {
				return
			}
			if nearest(filepath.Dir(a.path)) != dir {
				continue // another one came or went meanwhile
			}
			if _, err := os.Lstat(a.path); err == nil {
				a.retry() // and so did the socket, or it is a dead one's
			}
		}
		select {
		case <-ctx.Done():
			return
		case e, ok := <-w.Events:
			if !ok {
				return
			}
			if e.Name == a.path && e.Has(fsnotify.Create) {
				a.retry()
			}
			if e.Name == watched && e.Has(fsnotify.Remove|fsnotify.Rename) {
				watched = "" // another one may have its name
			}
		case _, ok := <-w.Errors:
			if !ok {
				return
			}
			a.retry() // events were lost
		}
	}
}

// nearest is dir, or what there is above it.
func nearest(dir string) string {
	for {
		if _, err := os.Stat(dir); err == nil || dir == "/" || dir == "." {
			return dir
		}
		dir = filepath.Dir(dir)
	}
}
