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
)

// blindPeriod is how often files are looked at where inotify does not work.
const blindPeriod = 2 * time.Minute

// watchFiles nudges changed when it has begun, and when one of the files
// changes, until ctx ends. The files and their folders need not exist. Paths
// is asked anew after each change and when others nudge moved.
func watchFiles(ctx context.Context, log *slog.Logger, paths func() []string, moved <-chan struct{}, changed chan<- struct{}) {
	told := false
	for ctx.Err() == nil {
		err := watchUntil(ctx, paths, moved, changed)
		if ctx.Err() != nil {
			return
		}
		if !told {
			told = true
			log.Warn("cannot watch the node's credentials: they are looked at every two minutes", "error", err)
		}
		nudge(changed)
		_ = pause(ctx, blindPeriod+rand.N(blindPeriod/10), nil, nil) // the loop sees the end
	}
}

// watchUntil watches until ctx ends or inotify fails.
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
			nudge(changed) // something may have come before it was watched
			continue       // and a folder between the two
		}
		select {
		case e, open := <-watcher.Events:
			if !open {
				return errors.New("watch files: inotify ended")
			}
			if e.Op != fsnotify.Chmod && names(e.Name) {
				nudge(changed)
			}
			if slices.Contains(have, e.Name) {
				have = nil // another folder may have taken its place
			}
		case err, open := <-watcher.Errors:
			if !open || !errors.Is(err, fsnotify.ErrEventOverflow) {
				return fmt.Errorf("watch files: %w", err)
			}
			nudge(changed)
		case <-moved:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// places are the folders to watch for files, and whether an event's path is
// one of the files. Of a folder that does not exist, that is the nearest one
// above that does.
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

// exists says that there may be a folder: what cannot be read is not missing.
func exists(path string) bool {
	_, err := os.Stat(path)
	return !errors.Is(err, fs.ErrNotExist)
}

func move(watcher *fsnotify.Watcher, have, want []string) error {
	for _, folder := range have {
		if !slices.Contains(want, folder) {
			_ = watcher.Remove(folder) // it may be gone, which ended it
		}
	}
	for _, folder := range want {
		if err := watcher.Add(folder); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("watch folder %s: %w", folder, err)
		}
	}
	return nil
}
