package preload

import (
	"errors"
	"fmt"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// watcher notifies when files of a folder appear, disappear or are closed
// after writing. fsnotify is not used: it would also notify of every write to
// a file that is still being copied.
type watcher struct {
	file    *os.File
	changed chan struct{} // one slot: the folder changed
	wg      sync.WaitGroup
}

const watchMask = unix.IN_CLOSE_WRITE | unix.IN_MOVED_TO | unix.IN_MOVED_FROM | unix.IN_DELETE |
	unix.IN_DELETE_SELF | unix.IN_MOVE_SELF | unix.IN_ONLYDIR

// watch starts watching a folder, which must exist. The caller must close the
// watcher.
func watch(dir string) (*watcher, error) {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("watch %q: %w", dir, err)
	}
	if _, err := unix.InotifyAddWatch(fd, dir, watchMask); err != nil {
		return nil, errors.Join(fmt.Errorf("watch %q: %w", dir, err), unix.Close(fd))
	}
	w := &watcher{file: os.NewFile(uintptr(fd), "inotify"), changed: make(chan struct{}, 1)}
	w.wg.Go(w.read)
	return w, nil
}

// read notifies of every batch of inotify events and ignores their content.
func (w *watcher) read() {
	buf := make([]byte, 4096)
	for {
		if _, err := w.file.Read(buf); err != nil {
			return // closed
		}
		select {
		case w.changed <- struct{}{}:
		default:
		}
	}
}

func (w *watcher) close() {
	_ = w.file.Close()
	w.wg.Wait()
}
