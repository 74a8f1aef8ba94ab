package objects

import (
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/fsnotify/fsnotify"
)

// watch keeps inotify watches on the directory and on its nearest existing
// ancestor, so that the directory may appear, disappear or be replaced. Its
// goroutine only records that something changed.
type watch struct {
	folder  *Folder
	inotify *fsnotify.Watcher // nil while inotify does not work
	done    chan struct{}     // the goroutine has ended
	have    []string
	logged  bool
}

func newWatch(f *Folder) *watch { return &watch{folder: f} }

// close stops the goroutine and waits for it. From then on the Folder's methods
// check the files themselves.
func (w *watch) close() {
	w.folder.mu.Lock()
	w.folder.watched = false
	w.folder.mu.Unlock()
	if w.inotify != nil {
		_ = w.inotify.Close()
		<-w.done
	}
}

// place places the watches and reports whether they work.
func (w *watch) place() bool {
	if w.inotify == nil {
		inotify, err := fsnotify.NewWatcher()
		if err != nil {
			return w.failed(err)
		}
		w.inotify, w.done = inotify, make(chan struct{})
		go func() {
			defer close(w.done)
			w.read(inotify)
		}()
	}
	const attempts = 3 // the directory may appear while its ancestor is watched
	for range attempts {
		want := targets(w.folder.config.Path)
		if err := w.watch(want); err != nil {
			return w.failed(err)
		}
		if slices.Equal(want, targets(w.folder.config.Path)) {
			break
		}
	}
	w.logged = false
	return true
}

// watch replaces the watches.
func (w *watch) watch(want []string) error {
	for _, path := range w.have {
		if !slices.Contains(want, path) {
			_ = w.inotify.Remove(path) // it may be gone, which removed the watch
		}
	}
	w.have = want
	for _, path := range want {
		// Adding a watched path again costs one call, and restores a watch that
		// was removed when the directory was replaced.
		if err := w.inotify.Add(path); err != nil {
			return err
		}
	}
	return nil
}

func (w *watch) failed(err error) bool {
	if !w.logged {
		w.logged = true
		w.folder.config.Log.Warn("fall back to polling local objects",
			"path", w.folder.config.Path, "error", err)
	}
	return false
}

// targets returns the directories to watch: the path, if it exists, and its
// nearest existing ancestor.
func targets(path string) []string {
	var want []string
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		want = append(want, path)
	}
	for at := path; ; {
		parent := filepath.Dir(at)
		if info, err := os.Stat(parent); (err == nil && info.IsDir()) || parent == at {
			return append(want, parent)
		}
		at = parent
	}
}

// read records events until inotify is closed.
func (w *watch) read(inotify *fsnotify.Watcher) {
	events, errs := inotify.Events, inotify.Errors
	for events != nil || errs != nil {
		select {
		case ev, ok := <-events:
			if !ok {
				events = nil
			} else if w.relevant(ev.Name) {
				w.note()
			}
		case _, ok := <-errs: // the queue overflowed
			if !ok {
				errs = nil
			} else {
				w.note()
			}
		}
	}
}

// relevant reports whether a changed name is relevant to the directory.
func (w *watch) relevant(name string) bool {
	path := w.folder.config.Path
	return name == path || filepath.Dir(name) == path || strings.HasPrefix(path, strings.TrimSuffix(name, "/")+"/")
}

func (w *watch) note() {
	w.folder.mu.Lock()
	defer w.folder.mu.Unlock()
	w.folder.dirty = true
	w.folder.notify()
}
