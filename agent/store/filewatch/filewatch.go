// Package filewatch reports changes of files and directories, and has the signature of a
// version of a file.
//
// A Watch watches each directory that the kernel searches when it resolves a path.
// So a file or directory may appear, disappear, be replaced by rename or be behind
// symbolic links, and directories above it may be missing. Each directory is watched
// before its entry is read: no change between the two is missed.
//
// All Watches of the process share one inotify instance and one goroutine, which
// exist while there is a Watch. The kernel limits the instances of a user
// (fs.inotify.max_user_instances, 128). Network file systems and mounts over a
// directory cause no events.
//
// The package reads inotify itself. github.com/fsnotify/fsnotify cannot select
// IN_CLOSE_WRITE, reports a directory only under the first of several names, drops
// the watch of an unmounted file system silently, and has a buffer of 64 kB.
package filewatch

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/tinylet/tinylet/agent/wait"
)

// Events are the events of a file that are changes, in addition to those that every
// Watch has: a file was created, removed or renamed.
type Events uint32

// The kinds of Events.
const (
	Writes     Events = unix.IN_MODIFY
	Closes     Events = unix.IN_CLOSE_WRITE // a file that was open for writing was closed
	Attributes Events = unix.IN_ATTRIB      // mode, owner, times, number of links
)

// maxNames bounds Changes.Names. Beyond it, Changes.All is set.
const maxNames = 256

// Config configures a Watch.
type Config struct {
	Events Events
	// Names makes Take return the names of changed entries.
	Names bool
	// Ignore reports whether changes of a directory's entry with this base name do
	// not count. Nil ignores none. It must not block.
	Ignore func(name string) bool
}

// Changes are the changes since the last Take.
type Changes struct {
	// Any is set if something changed.
	Any bool
	// All is set if any of the paths may have changed: a path that is no directory, or
	// a directory or symbolic link on the way to one, changed, or events were lost.
	All bool
	// Entries is set if an entry of a watched directory was created, removed or
	// renamed.
	Entries bool
	// Names are the changed entries of watched directories, with the directory's
	// path as given to Set. It is nil without Config.Names.
	Names map[string]struct{}
}

// Watch reports changes of paths. For a directory, changes of its entries are
// changes too, but not those in its subdirectories. Its methods may be called
// concurrently.
type Watch struct {
	config  Config
	changed wait.Wakeup

	placing sync.Mutex // serializes Set, Take and Close; held during system calls
	paths   []string   // guarded by placing
	on      *instance  // guarded by placing; nil while not attached

	// The fields below are guarded by the package's mu.
	changes Changes
	lost    bool   // the watches must be placed again
	round   uint64 // counts placements
}

// New returns a Watch of no path. It makes no system call.
func New(config Config) *Watch {
	return &Watch{config: config, changed: wait.NewWakeup()}
}

// Changed returns a channel that receives a value when there are changes to Take.
func (w *Watch) Changed() <-chan struct{} { return w.changed }

// Pending reports whether there are changes to Take.
func (w *Watch) Pending() bool {
	mu.Lock()
	defer mu.Unlock()
	return w.changes.Any
}

// Set watches paths, which need not exist, instead of the previous ones. fresh
// reports whether any watch is new; changes before Set are not reported then. Set also
// replaces the watches of directories over which something was mounted. With an error,
// changes may be missed, and Take tries again.
func (w *Watch) Set(paths ...string) (fresh bool, err error) {
	w.placing.Lock()
	defer w.placing.Unlock()
	w.paths = slices.Clone(paths)
	return w.place()
}

// Take returns and clears the changes. Call it before the files are read: later
// changes are reported again. It replaces lost watches. With an error, changes may
// be missed, and the caller has to poll. While nothing changes, it makes no system
// call and allocates nothing.
func (w *Watch) Take() (changes Changes, err error) {
	mu.Lock()
	lost := w.lost
	mu.Unlock()
	if lost {
		w.placing.Lock()
		changes.All, err = w.place()
		changes.Any = changes.All
		w.placing.Unlock()
	}
	mu.Lock()
	defer mu.Unlock()
	changes.join(w.changes)
	w.changes = Changes{}
	select {
	case <-w.changed:
	default:
	}
	if w.lost && err == nil {
		w.notify(Changes{All: true}) // a directory changed during the placement
	}
	return changes, err
}

// Close ends the Watch. If it was the process's last one, Close waits for the end of
// the goroutine. Set makes it usable again.
func (w *Watch) Close() {
	w.placing.Lock()
	defer w.placing.Unlock()
	w.paths = nil
	w.detach()
}

// place places the watches for w.paths and removes the others. The caller holds
// w.placing.
func (w *Watch) place() (fresh bool, err error) {
	if len(w.paths) == 0 {
		w.detach()
		return false, nil
	}
	if err := w.attach(); err != nil {
		return false, err
	}
	for _, path := range w.paths {
		added, failed := w.follow(path)
		fresh, err = fresh || added, errors.Join(err, failed)
	}
	mu.Lock()
	defer mu.Unlock()
	w.on.adding--
	w.on.drop(w, w.round)
	w.lost = w.lost || err != nil
	return fresh, err
}

// attach begins a placement. It starts the process's instance if there is none.
func (w *Watch) attach() error {
	mu.Lock()
	defer mu.Unlock()
	w.lost = true // for the errors below
	if shared == nil {
		i, err := start()
		if err != nil {
			return err
		}
		shared = i
	}
	if shared.failed != nil {
		return shared.failed
	}
	shared.users[w] = struct{}{}
	shared.adding++
	w.on, w.lost = shared, false
	w.round++
	return nil
}

// detach removes all watches, and stops the process's instance after the last Watch.
func (w *Watch) detach() {
	mu.Lock()
	i := w.on
	w.on, w.lost, w.changes = nil, false, Changes{}
	if i == nil {
		mu.Unlock()
		return
	}
	delete(i.users, w)
	i.drop(w, 0)
	last := len(i.users) == 0
	if last {
		shared = nil
	}
	mu.Unlock()
	if last {
		i.stop()
	}
}

// maxLinks is the kernel's limit of symbolic links in a path.
const maxLinks = 40

// follow watches each directory that is searched for path, and what the path leads
// to. fresh reports whether any of the directories was not watched by w.
func (w *Watch) follow(path string) (fresh bool, err error) {
	rest := path
	if !filepath.IsAbs(path) {
		current, err := os.Getwd()
		if err != nil {
			return false, fmt.Errorf("watch %s: %w", path, err)
		}
		rest = current + "/" + path
	}
	for dir, links := "/", 0; links <= maxLinks; {
		var name string
		name, rest, _ = strings.Cut(strings.TrimLeft(rest, "/"), "/")
		switch name {
		case ".":
			continue
		case "..":
			dir = filepath.Dir(dir)
			continue
		case "": // the path leads to the directory dir
			added, err := w.on.add(dir, interest{w: w, path: path, mask: entryEvents | uint32(w.config.Events)})
			return fresh || added, err
		}
		edge := interest{w: w, name: name, mask: entryEvents}
		added, err := w.on.add(dir, edge)
		fresh = fresh || added
		if err != nil && (rest == "" || !errors.Is(err, unix.EACCES)) {
			return fresh, err
		}
		entry := filepath.Join(dir, name)
		info, err := os.Lstat(entry)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return fresh, nil
		case err != nil:
			return fresh, fmt.Errorf("watch %s: %w", path, err)
		case info.IsDir():
			dir = entry
		case info.Mode()&fs.ModeSymlink != 0:
			target, _ := os.Readlink(entry)
			if target == "" {
				return fresh, nil // it was just replaced, which the watch reports
			}
			if filepath.IsAbs(target) {
				dir = "/"
			}
			rest = target + "/" + rest
			links++
		case info.Mode().IsRegular() && rest == "":
			edge.mask |= uint32(w.config.Events)
			_, err := w.on.add(dir, edge)
			return fresh, err
		default:
			return fresh, nil
		}
	}
	return fresh, nil
}

// notify records changes. The caller holds mu.
func (w *Watch) notify(c Changes) {
	c.Any = true
	w.changes.join(c)
	w.changed.Set()
}

// addName records a changed entry of a directory. The caller holds mu.
func (w *Watch) addName(dir string, name []byte) {
	switch {
	case !w.config.Names:
		return
	case w.changes.Names == nil:
		w.changes.Names = make(map[string]struct{})
	case len(w.changes.Names) >= maxNames:
		w.changes.All = true
		return
	}
	w.changes.Names[filepath.Join(dir, string(name))] = struct{}{}
}

func (c *Changes) join(o Changes) {
	c.Any, c.All, c.Entries = c.Any || o.Any, c.All || o.All, c.Entries || o.Entries
	if c.Names == nil {
		c.Names = o.Names
	} else {
		maps.Copy(c.Names, o.Names)
	}
}
