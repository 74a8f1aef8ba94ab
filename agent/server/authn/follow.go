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

// blindPeriod is how often the file is looked at where inotify does not work.
const blindPeriod = 2 * time.Minute

// follow reads the file when it begins and when the file changes, until ctx
// ends.
func (b *bundle) follow(ctx context.Context) {
	told := false
	for {
		err := b.watch(ctx)
		if ctx.Err() != nil {
			return
		}
		if !told {
			told = true
			b.log.Warn("cannot watch the client CA file: it is looked at every two minutes", "path", b.path, "error", err)
		}
		_ = b.load() // it has told what is wrong
		again := time.NewTimer(blindPeriod + rand.N(blindPeriod/10))
		select {
		case <-again.C:
		case <-ctx.Done():
			again.Stop()
			return
		}
	}
}

// watch follows the file until ctx ends or inotify fails. Watched are
// folders, so that a file that is replaced, or that comes later, is seen.
func (b *bundle) watch(ctx context.Context) error {
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		return fmt.Errorf("watch client CA file: %w", err)
	}
	defer watcher.Close()
	var have []string
	lost := false // another folder may have taken the place of one that is watched
	for {
		want, links := b.places()
		if lost || !slices.Equal(want, have) {
			if err := move(watcher, have, want); err != nil {
				return err
			}
			have, lost = want, false
			continue // a link or a folder may have changed before it was watched
		}
		_ = b.load() // it has told what is wrong
		if err := wait(ctx, watcher, func(e fsnotify.Event) bool {
			lost = slices.Contains(have, e.Name)
			return lost || e.Op != fsnotify.Chmod && slices.ContainsFunc(links, func(link string) bool { return within(link, e.Name) })
		}); err != nil {
			return err
		}
	}
}

// wait returns nil after an event that matters.
func wait(ctx context.Context, watcher *fsnotify.Watcher, matters func(fsnotify.Event) bool) error {
	for {
		select {
		case e, open := <-watcher.Events:
			if !open {
				return errors.New("watch client CA file: inotify ended")
			}
			if matters(e) {
				return nil
			}
		case err, open := <-watcher.Errors:
			if !open || !errors.Is(err, fsnotify.ErrEventOverflow) {
				return fmt.Errorf("watch client CA file: %w", err)
			}
			return nil // something was missed
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// places are the folders to watch, that of the file and those of what it
// links to, and the paths of all these files. Of a folder that does not
// exist, it is the nearest one above that does.
func (b *bundle) places() (folders, links []string) {
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

// nearest is the folder, or the one above it that exists. What cannot be read
// is not missing.
func nearest(folder string) string {
	for {
		if _, err := os.Stat(folder); !errors.Is(err, fs.ErrNotExist) || folder == filepath.Dir(folder) {
			return folder
		}
		folder = filepath.Dir(folder)
	}
}

// within says whether path is name or lies under it.
func within(path, name string) bool {
	return path == name || strings.HasPrefix(path, strings.TrimSuffix(name, "/")+"/")
}

// move watches the folders of want in place of those of have. One that just
// went is no error: the next look finds another.
func move(watcher *fsnotify.Watcher, have, want []string) error {
	for _, folder := range have {
		_ = watcher.Remove(folder) // it may be gone, which ended it
	}
	for _, folder := range want {
		if err := watcher.Add(folder); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("watch folder %s: %w", folder, err)
		}
	}
	return nil
}
