package identity

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/fsnotify/fsnotify"

	"github.com/tinylet/tinylet/agent/wait"
)

// pollInterval is the polling interval of the files where inotify does not work.
const pollInterval = 2 * time.Minute

// watchFiles notifies changed when the watch is established and whenever one of the
// files changes, until ctx ends. The files and their directories need not exist. It
// calls paths again after each change and after each notification on moved.
func watchFiles(ctx context.Context, log *slog.Logger, paths func() []string, moved <-chan struct{}, changed chan<- struct{}) {
	warned := false
	for ctx.Err() == nil {
		err := watchUntil(ctx, paths, moved, changed)
		if ctx.Err() != nil {
			return
		}
		if !warned {
			warned = true
			log.Warn("cannot watch credential files, polling instead", "interval", pollInterval, "error", err)
		}
		wait.Notify(changed)
		_ = pause(ctx, pollInterval+rand.N(pollInterval/10), nil, nil) // the loop checks ctx
	}
}

// watchUntil watches until ctx ends or inotify fails. Its error is never nil.
func watchUntil(ctx context.Context, paths func() []string, moved <-chan struct{}, changed chan<- struct{}) error {
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		return fmt.Errorf("watch files: %w", err)
	}
	defer watcher.Close()
	var have []string
	for {
		want, names := places(paths())
		if !slices.Equal(want, have) {
			if err := move(watcher, have, want); err != nil {
				return err
			}
			have = want
			wait.Notify(changed) // a file may have changed before the watch began
			continue             // a directory may have appeared meanwhile
		}
		select {
		case e, open := <-watcher.Events:
			if !open {
				return errors.New("watch files: inotify closed")
			}
			if e.Op != fsnotify.Chmod && names(e.Name) {
				wait.Notify(changed)
			}
			if slices.Contains(have, e.Name) {
				have = nil // the directory may have been replaced
			}
		case err, open := <-watcher.Errors:
			if !open || !errors.Is(err, fsnotify.ErrEventOverflow) {
				return fmt.Errorf("watch files: %w", err)
			}
			wait.Notify(changed)
		case <-moved:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// places returns the directories to watch for the files, and a function that
// reports whether an event's path is one of the files. For a directory that does
// not exist, it returns the nearest existing parent.
func places(paths []string) (folders []string, names func(string) bool) {
	for _, path := range paths {
		folder := filepath.Dir(path)
		for !exists(folder) && folder != filepath.Dir(folder) {
			folder = filepath.Dir(folder)
		}
		folders = append(folders, folder)
	}
	slices.Sort(folders)
	return slices.Compact(folders), func(name string) bool { return slices.Contains(paths, name) }
}

// exists reports whether path may exist. A path that cannot be read counts as
// existing.
func exists(path string) bool {
	_, err := os.Stat(path)
	return !errors.Is(err, fs.ErrNotExist)
}

func move(watcher *fsnotify.Watcher, have, want []string) error {
	for _, folder := range have {
		if !slices.Contains(want, folder) {
			_ = watcher.Remove(folder) // the directory may be gone, and its watch with it
		}
	}
	for _, folder := range want {
		if err := watcher.Add(folder); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("watch directory %s: %w", folder, err)
		}
	}
	return nil
}
