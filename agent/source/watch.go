package source

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/fsnotify/fsnotify"
)

// maxNames bounds the changed files that are recorded by name. Beyond it, all
// files count as changed.
const maxNames = 256

// watcher keeps inotify watches on a path that may appear, disappear, be
// replaced or be a symbolic link, and accumulates the events until take is
// called. Its goroutine only records events; it never blocks on the reader.
//
// It watches the path's nearest existing ancestor, the path itself if it is a
// directory, and the directories of the files behind symbolic links.
type watcher struct {
	path string
	log  *slog.Logger
	wake chan struct{} // capacity 1: an event was recorded

	inotify   *fsnotify.Watcher // nil while inotify does not work
	done      chan struct{}     // the goroutine has ended
	root      signature         // of the watched path
	have      []string          // watched directories
	partial   bool              // a directory disappeared while its watch was added
	lastError string            // last logged error

	mu    sync.Mutex
	notes events
	links []string // real paths behind symbolic links
	lost  bool     // a watched directory was moved or deleted
}

// events are the accumulated inotify events since the last take.
type events struct {
	names     map[string]struct{} // paths in the directory, not targets of links
	all       bool                // any file may have changed
	any       bool                // at least one of the above
	rewatched bool                // watches were added: stat again
	watched   bool                // inotify works: no change is missed
}

// join adds the next events.
func (e *events) join(next events) {
	if e.names == nil {
		e.names = next.names
	} else {
		maps.Copy(e.names, next.names)
	}
	e.all = e.all || next.all
	e.any = e.any || next.any
	e.rewatched, e.watched = next.rewatched, next.watched
}

func newWatcher(path string, log *slog.Logger) *watcher {
	return &watcher{path: path, log: log, wake: make(chan struct{}, 1)}
}

// close stops the goroutine and waits for it.
func (w *watcher) close() {
	if w.inotify == nil {
		return
	}
	if err := w.inotify.Close(); err != nil {
		w.log.Warn("cannot close inotify", "path", w.path, "error", err)
	}
	<-w.done
	w.inotify = nil
}

// drain places the watches for the path with the stat root, and then returns and
// clears the accumulated events. Later changes are recorded again.
func (w *watcher) drain(root *signature) events {
	moved := w.ensure(root)
	w.mu.Lock()
	taken := w.notes
	w.notes = events{}
	w.mu.Unlock()
	select {
	case <-w.wake:
	default:
	}
	if moved {
		taken.all, taken.any, taken.rewatched = true, true, true
	}
	taken.watched = w.inotify != nil && w.lastError == ""
	return taken
}

// follow sets the files behind symbolic links. Their directories are watched
// from the next take on.
func (w *watcher) follow(links []string) {
	slices.Sort(links)
	w.mu.Lock()
	defer w.mu.Unlock()
	if !slices.Equal(links, w.links) {
		w.links = links
		w.lost = true
		w.notify()
	}
}

// ensure places the watches if needed and reports whether any watch is new.
func (w *watcher) ensure(root *signature) bool {
	if w.inotify == nil && !w.start() {
		return false
	}
	w.mu.Lock()
	lost, links := w.lost, w.links
	w.lost = false
	w.mu.Unlock()
	same := root.sameFile(&w.root)
	if same && !lost && !w.partial && w.lastError == "" && w.have != nil {
		return false
	}
	w.root = *root
	return w.place(targets(w.path, root, links), lost || !same)
}

// place replaces the watches and reports whether any is new. With all it adds
// all of them again, since a directory may be another one under the same name.
func (w *watcher) place(want []string, all bool) bool {
	for _, path := range w.have {
		if all || !slices.Contains(want, path) {
			// It fails if the directory is gone, which removed the watch.
			_ = w.inotify.Remove(path)
		}
	}
	w.have, w.partial = make([]string, 0, len(want)), false
	var trouble error
	for _, path := range want {
		err := w.inotify.Add(path)
		switch {
		case err == nil:
			w.have = append(w.have, path)
		case errors.Is(err, fs.ErrNotExist):
			w.partial = true // it was just deleted
		default:
			trouble = errors.Join(trouble, fmt.Errorf("watch %s: %w", path, err))
		}
	}
	w.logError(trouble)
	return trouble == nil
}

// logError logs once that inotify does not work.
func (w *watcher) logError(err error) {
	text := ""
	if err != nil {
		text = err.Error()
	}
	if text != "" && text != w.lastError {
		w.log.Warn("fall back to polling manifests", "path", w.path, "error", err)
	}
	w.lastError = text
}

func (w *watcher) start() bool {
	inotify, err := fsnotify.NewWatcher()
	if err != nil {
		w.logError(err)
		return false
	}
	w.inotify, w.done, w.have = inotify, make(chan struct{}), nil
	go func() {
		defer close(w.done)
		w.read(inotify)
	}()
	return true
}

// read records events until inotify is closed.
func (w *watcher) read(inotify *fsnotify.Watcher) {
	events, errs := inotify.Events, inotify.Errors
	for events != nil || errs != nil {
		select {
		case ev, ok := <-events:
			if !ok {
				events = nil
				continue
			}
			w.record(ev)
		case _, ok := <-errs:
			if !ok {
				errs = nil
				continue
			}
			// The queue overflowed, or a watch may be lost.
			w.mu.Lock()
			w.notes.all, w.lost = true, true
			w.notify()
			w.mu.Unlock()
		}
	}
}

func (w *watcher) record(ev fsnotify.Event) {
	w.mu.Lock()
	defer w.mu.Unlock()
	moved := ev.Has(fsnotify.Remove) || ev.Has(fsnotify.Rename) || ev.Has(fsnotify.Create)
	switch relevance(ev.Name, w.path, w.links) {
	case ignored:
		return
	case aFile:
		if w.notes.names == nil {
			w.notes.names = make(map[string]struct{})
		}
		if len(w.notes.names) < maxNames {
			w.notes.names[ev.Name] = struct{}{}
		} else {
			w.notes.all = true
		}
	case thePath:
		w.notes.all = true
		w.lost = w.lost || moved
	case aTarget:
		w.notes.all = true
		w.lost = w.lost || moved
	}
	w.notify()
}

// notify wakes the reader. The caller holds the lock.
func (w *watcher) notify() {
	w.notes.any = true
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

type kind uint8

const (
	ignored kind = iota
	aFile        // a file in the directory
	thePath      // the path itself or a directory above it
	aTarget      // may be on the path of a symbolic link
)

// relevance classifies a changed name. Names with one leading dot belong to
// editors and copy tools. Names with two leading dots are the directories that
// the atomic writer of a volume swaps.
func relevance(name, path string, links []string) kind {
	switch {
	case name == path, path != name && strings.HasPrefix(path, strings.TrimSuffix(name, "/")+"/"):
		return thePath
	case strings.HasPrefix(filepath.Base(name), ".."):
		return aTarget
	case slices.ContainsFunc(links, func(link string) bool {
		return link == name || strings.HasPrefix(link, name+"/")
	}):
		return aTarget
	case filepath.Dir(name) == path && !strings.HasPrefix(filepath.Base(name), "."):
		return aFile
	default:
		return ignored
	}
}

// targets returns the directories to watch. The path itself comes first:
// inotify reports a directory under the first name that it was added with.
func targets(path string, root *signature, links []string) []string {
	var want []string
	if root.folder() {
		want = append(want, path)
	}
	want = append(want, ancestor(path))
	for _, link := range links {
		if folder := filepath.Dir(link); !slices.Contains(want, folder) {
			want = append(want, folder)
		}
	}
	return want
}

// ancestor returns the nearest existing directory above a path.
func ancestor(path string) string {
	for {
		parent := filepath.Dir(path)
		info, err := os.Stat(parent)
		if (err == nil && info.IsDir()) || parent == path {
			return parent
		}
		path = parent
	}
}
