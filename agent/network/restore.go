package network

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/fsnotify/fsnotify"

	"github.com/tinylet/tinylet/agent/wait"
	"github.com/tinylet/tinylet/net/cni"
)

// A file that was deleted or overwritten is written again at once. If that repeats,
// the waits begin with at most firstRestore and double up to slowLook. A period of
// slowLook without a change resets them.
const firstRestore = 2 * time.Second

// watcher watches folders for changes.
type watcher interface {
	// run sends the path of each changed file or folder until ctx ends, and ""
	// after an event queue overflow. It returns nil then. If place was called
	// before run, which had no effect, run calls begun first.
	run(ctx context.Context, begun func(), changed chan<- string) error
	// place sets the watched folders. fresh reports that one of them was not
	// watched before, so that a change may have been missed.
	place(folders []string) (fresh bool, err error)
}

// watchFiles triggers a reconcile when the network configuration, the plugin's link
// or the loopback script is deleted or changed by others.
func (n *Network) watchFiles(ctx context.Context) error {
	changed := make(chan string)
	ended := make(chan error, 1)
	ctx, cancel := context.WithCancel(ctx)
	go func() { ended <- n.files.run(ctx, n.Trigger, changed) }()
	defer func() {
		cancel()
		<-ended
	}()
	backoff := wait.Backoff{First: firstRestore, Max: resyncInterval}
	var last time.Time
	var due <-chan time.Time // nil while no file has changed
	for {
		select {
		case err := <-ended:
			ended <- nil
			return err
		case path := <-changed:
			if due != nil || !n.concerns(path) {
				continue
			}
			wait := time.Duration(0)
			if time.Since(last) < resyncInterval {
				wait = backoff.Next()
			} else {
				backoff.Reset()
			}
			due = time.After(wait)
		case <-due:
			due, last = nil, time.Now()
			n.Trigger()
		}
	}
}

// concerns reports whether a changed path is a maintained file with another state
// than desired, or the folder of one.
func (n *Network) concerns(path string) bool {
	n.mu.Lock()
	folders, written := n.watched, n.written
	n.mu.Unlock()
	if path == "" || slices.Contains(folders, path) {
		return true
	}
	switch filepath.Base(path) {
	case FileName:
		data, err := folder{filepath.Dir(path)}.read()
		return err != nil || !bytes.Equal(data, written)
	case Plugin:
		return !linked(path, n.cfg.Binary)
	case cni.LoopbackType:
		_, err := os.Stat(path)
		return err != nil
	}
	return false
}

// place watches the folders of the maintained files. It reports whether another
// reconcile is needed, because a change may have been missed.
func (n *Network) place() (fresh bool) {
	if n.files == nil {
		return false
	}
	var folders []string
	if n.kept {
		folders = append(slices.Clone(n.directories.pluginDirs), n.folder.path)
	}
	n.mu.Lock()
	n.watched = folders
	n.mu.Unlock()
	fresh, err := n.files.place(folders)
	if err != nil && n.unwatched != err.Error() {
		n.cfg.Log.Warn("cannot watch network files, check periodically", "error", err)
	}
	n.unwatched = ""
	if err != nil {
		n.unwatched = err.Error()
	}
	return fresh
}

// inotify implements watcher with inotify(7).
type inotify struct {
	mu   sync.Mutex
	open *fsnotify.Watcher // nil while run does not run
	late bool              // place was called while open was nil
}

func (i *inotify) run(ctx context.Context, begun func(), changed chan<- string) error {
	open, err := fsnotify.NewWatcher()
	if err != nil {
		return fmt.Errorf("watch network files: %w", err)
	}
	defer open.Close()
	set := func(w *fsnotify.Watcher) (late bool) {
		i.mu.Lock()
		defer i.mu.Unlock()
		late, i.open, i.late = i.late, w, false
		return late
	}
	if set(open) {
		begun()
	}
	defer set(nil)
	for {
		path := ""
		select {
		case <-ctx.Done():
			return nil
		case e := <-open.Events:
			if e.Op == fsnotify.Chmod {
				continue
			}
			path = e.Name
		case err := <-open.Errors:
			if !errors.Is(err, fsnotify.ErrEventOverflow) {
				return fmt.Errorf("watch network files: %w", err)
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case changed <- path:
		}
	}
}

// place also adds folders that are watched already: that costs one call, and renews
// the watch of a folder that was replaced.
func (i *inotify) place(folders []string) (fresh bool, err error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.open == nil {
		i.late = true
		return false, nil
	}
	have := i.open.WatchList()
	for _, folder := range have {
		if !slices.Contains(folders, folder) {
			_ = i.open.Remove(folder) // a deleted folder has ended the watch
		}
	}
	for _, folder := range folders {
		switch added := i.open.Add(folder); {
		case added == nil:
			fresh = fresh || !slices.Contains(have, folder)
		case !errors.Is(added, fs.ErrNotExist):
			err = errors.Join(err, fmt.Errorf("watch folder %s: %w", folder, added))
		}
	}
	return fresh, err
}
