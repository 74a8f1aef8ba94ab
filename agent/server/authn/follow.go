package authn

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/fsnotify/fsnotify"
)

// pollInterval is the poll interval of the file if inotify does not work.
const pollInterval = 2 * time.Minute

// follow loads the file at its start and after each change, until ctx ends.
func (b *bundle) follow(ctx context.Context) {
	logged := false
	for {
		err := b.watch(ctx)
		if ctx.Err() != nil {
			return
		}
		if !logged {
			logged = true
			b.log.Warn("cannot watch client CA file, polling it", "path", b.path, "interval", pollInterval, "error", err)
		}
		_ = b.load() // has logged the error
		again := time.NewTimer(pollInterval + rand.N(pollInterval/10))
		select {
		case <-again.C:
		case <-ctx.Done():
			again.Stop()
			return
		}
	}
}

// watch loads the file after each change until ctx ends or inotify fails. It watches
// directories, to notice a file that is replaced or created later.
func (b *bundle) watch(ctx context.Context) error {
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		return fmt.Errorf("watch client CA file: %w", err)
	}
	defer watcher.Close()
	var have []string
	lost := false // a watched directory may have been replaced
	for {
		want, links := b.watchDirs()
		if lost || !slices.Equal(want, have) {
			if err := rewatch(watcher, have, want); err != nil {
				return err
			}
			have, lost = want, false
			continue // a link or a directory may have changed before it was watched
		}
		_ = b.load() // has logged the error
		if err := wait(ctx, watcher, func(e fsnotify.Event) bool {
			lost = slices.Contains(have, e.Name)
			return lost || e.Op != fsnotify.Chmod && slices.ContainsFunc(links, func(link string) bool { return within(link, e.Name) })
		}); err != nil {
			return err
		}
	}
}

// wait blocks until an event for which matters returns true, an event overflow, an
// error, or the end of ctx. It returns nil in the first two cases.
func wait(ctx context.Context, watcher *fsnotify.Watcher, matters func(fsnotify.Event) bool) error {
	for {
		select {
		case e, open := <-watcher.Events:
			if !open {
				return errors.New("watch client CA file: inotify watcher closed")
			}
			if matters(e) {
				return nil
			}
		case err, open := <-watcher.Errors:
			if !open || !errors.Is(err, fsnotify.ErrEventOverflow) {
				return fmt.Errorf("watch client CA file: %w", err)
			}
			return nil // events were lost
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// watchDirs returns the directories to watch and the paths of the files in them: the
// file itself and the targets of its symbolic links. A directory that does not exist
// is replaced by its nearest existing parent.
func (b *bundle) watchDirs() (folders, links []string) {
	const maxLinks = 8
	path := b.path
	for range maxLinks {
		links = append(links, path)
		folders = append(folders, nearest(filepath.Dir(path)))
		target, err := os.Readlink(path)
		if err != nil {
			break
		}
		if !filepath.IsAbs(target) {
			target = filepath.Join(filepath.Dir(path), target)
		}
		path = target
	}
	slices.Sort(folders)
	return slices.Compact(folders), links
}

// nearest returns the directory, or its nearest existing parent. A directory that
// cannot be read counts as existing.
func nearest(folder string) string {
	for {
		if _, err := os.Stat(folder); !errors.Is(err, fs.ErrNotExist) || folder == filepath.Dir(folder) {
			return folder
		}
		folder = filepath.Dir(folder)
	}
}

// within reports whether path is name or below it.
func within(path, name string) bool {
	return path == name || strings.HasPrefix(path, strings.TrimSuffix(name, "/")+"/")
}

// rewatch replaces the watched directories have by want. A directory that was just
// removed is no error: the next call of places returns its parent.
func rewatch(watcher *fsnotify.Watcher, have, want []string) error {
	for _, folder := range have {
		_ = watcher.Remove(folder) // fails if the directory was removed, which ended the watch
	}
	for _, folder := range want {
		if err := watcher.Add(folder); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("watch directory %s: %w", folder, err)
		}
	}
	return nil
}
