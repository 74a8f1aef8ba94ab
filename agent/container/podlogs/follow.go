package podlogs

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"github.com/fsnotify/fsnotify"
)

// follow prints the log and everything that is appended to it. It waits for
// file system events and does not poll.
func (r *reader) follow(ctx context.Context) error {
	dir := filepath.Dir(r.src.Path)
	w, err := fsnotify.NewWatcher()
	if err != nil {
		return fmt.Errorf("watch for changes: %w", err)
	}
	defer w.Close()
	// The watch starts before the first read, so that no change is missed.
	if r.src.WaitForDir {
		err = r.await(ctx, w, dir)
	} else {
		err = w.Add(dir)
	}
	if err != nil {
		return fmt.Errorf("watch %q: %w", dir, err)
	}
	if err := r.openFirst(ctx); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	woken := wakeup{entriesChanged: true}
	for {
		ended := r.ended()
		if err := r.catchUp(ctx, woken.entriesChanged); err != nil {
			return err
		}
		if ended || woken.dirRemoved {
			if r.file == nil {
				return nil
			}
			return r.finish()
		}
		if err := r.print.flush(); err != nil {
			return err
		}
		if woken, err = r.wait(ctx, w, dir); err != nil {
			return err
		}
	}
}

// await watches dir as soon as it exists. Until then it watches the nearest
// existing directory above.
func (r *reader) await(ctx context.Context, w *fsnotify.Watcher, dir string) error {
	above := ""
	for {
		err := w.Add(dir)
		found := dir
		if errors.Is(err, fs.ErrNotExist) {
			if found = existing(dir); found == dir {
				continue // it was created in between
			}
		}
		if above != "" && above != found {
			_ = w.Remove(above) // it may be removed already
		}
		if found == dir {
			return err
		}
		above = found
		// Added again each time, in case it was replaced.
		if err := w.Add(above); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		if existing(dir) != above {
			continue // it changed before it was watched
		}
		if _, err := r.wait(ctx, w, above); err != nil {
			return err
		}
	}
}

// existing returns the nearest existing directory, from dir upwards.
func existing(dir string) string {
	for dir != filepath.Dir(dir) {
		if info, err := os.Stat(dir); err == nil && info.IsDir() {
			break
		}
		dir = filepath.Dir(dir)
	}
	return dir
}

// catchUp prints up to the current end of the log. names means that files may
// have been created or removed.
func (r *reader) catchUp(ctx context.Context, names bool) error {
	for {
		if r.file != nil {
			if err := r.handleTruncation(); err != nil {
				return err
			}
			if err := r.drain(ctx); err != nil {
				return err
			}
		}
		if !names {
			return nil
		}
		path := r.src.Path
		next, err := r.openSuccessor()
		if err != nil {
			return err
		}
		if next == nil {
			return r.closeDeleted(ctx)
		}
		if err := r.finishFile(ctx, path != r.src.Path); err != nil {
			_ = next.Close() // only read from
			return err
		}
		r.switchTo(next)
	}
}

// finishFile prints the rest of the file after the writer switched to another one.
// A line may continue after a rotation, but not in the next container.
func (r *reader) finishFile(ctx context.Context, nextContainer bool) error {
	if r.file == nil {
		return nil
	}
	if err := r.drain(ctx); err != nil {
		return err
	}
	if err := r.finish(); err != nil || !nextContainer {
		return err
	}
	return r.print.endUnfinished()
}

// closeDeleted closes a file that was deleted. An open file keeps its directory
// alive in the kernel, which would suppress the event of the directory's
// removal.
func (r *reader) closeDeleted(ctx context.Context) error {
	if r.file == nil {
		return nil
	}
	info, err := r.file.Stat()
	if err != nil {
		return fmt.Errorf("stat: %w", err)
	}
	if s, ok := info.Sys().(*syscall.Stat_t); !ok || s.Nlink > 0 {
		return nil
	}
	err = r.finishFile(ctx, false)
	r.close()
	return err
}

// ended reports whether the container has ended and its log is not continued
// in another file.
func (r *reader) ended() bool {
	if r.src.FollowRestarts {
		return false
	}
	select {
	case <-r.src.Ended: // a nil channel is never ready
		return true
	default:
		return false
	}
}

// nextPath returns the log of the next container, or "".
func (r *reader) nextPath() string {
	number, ok := restartCountOf(filepath.Base(r.src.Path))
	if !ok {
		return ""
	}
	return nextPathAfter(filepath.Dir(r.src.Path), number)
}

// wakeup is what must be checked after a change.
type wakeup struct {
	entriesChanged bool // files were created or removed
	dirRemoved     bool // the directory was removed
}

// wait blocks until a change, and merges all pending changes.
func (r *reader) wait(ctx context.Context, w *fsnotify.Watcher, dir string) (wakeup, error) {
	var out wakeup
	ended := r.src.Ended
	if r.src.FollowRestarts {
		ended = nil
	}
	for first := true; ; first = false {
		if !first {
			select {
			case e, ok := <-w.Events:
				if !ok {
					return out, errWatchClosed
				}
				out.note(e, dir)
				continue
			default:
				return out, nil
			}
		}
		select {
		case <-ctx.Done():
			return out, context.Cause(ctx)
		case <-ended:
			out.entriesChanged = true
		case e, ok := <-w.Events:
			if !ok {
				return out, errWatchClosed
			}
			out.note(e, dir)
		case err, ok := <-w.Errors:
			if !ok {
				return out, errWatchClosed
			}
			if !errors.Is(err, fsnotify.ErrEventOverflow) {
				return out, fmt.Errorf("watch %q: %w", dir, err)
			}
			out.entriesChanged = true
		}
	}
}

// note merges an event into k.
func (k *wakeup) note(e fsnotify.Event, dir string) {
	if e.Has(fsnotify.Create) || e.Has(fsnotify.Rename) || e.Has(fsnotify.Remove) {
		k.entriesChanged = true
	}
	if e.Name == dir && (e.Has(fsnotify.Remove) || e.Has(fsnotify.Rename)) {
		k.dirRemoved = true
	}
}

var errWatchClosed = errors.New("file watcher closed")
