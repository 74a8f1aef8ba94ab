package podlogs

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"syscall"

	"github.com/tinylet/tinylet/agent/store/filewatch"
)

// follow prints the log and everything that is appended to it. It waits for
// file system events and does not poll.
func (r *reader) follow(ctx context.Context) error {
	dir := filepath.Dir(r.src.Path)
	w := filewatch.New(filewatch.Config{Events: filewatch.Writes})
	defer w.Close()
	// The watch starts before the first read, so that no change is missed.
	_, err := w.Set(dir)
	if err != nil {
		return err
	}
	at := filewatch.NewPath(dir)
	first, err := at.Stat()
	for errors.Is(err, fs.ErrNotExist) && r.src.WaitForDir {
		if _, err := r.wait(ctx, w); err != nil {
			return err
		}
		first, err = at.Stat()
	}
	if err != nil {
		return fmt.Errorf("stat %q: %w", dir, err)
	}
	if err := r.openFirst(ctx); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return r.followFrom(ctx, at, first, func() (filewatch.Changes, error) { return r.wait(ctx, w) })
}

// followFrom follows the log after the first file was opened or found to be missing. first
// is the file info of the log's directory, and wait blocks until the next changes.
func (r *reader) followFrom(ctx context.Context, at filewatch.Path, first filewatch.Signature, wait func() (filewatch.Changes, error)) error {
	changes := filewatch.Changes{All: true}
	for {
		ended := r.ended()
		if changes.All {
			now, err := at.Stat()
			ended = ended || errors.Is(err, fs.ErrNotExist) || err == nil && !now.SameFile(&first)
		}
		// The watch may not have reported a rotation just before the end.
		if err := r.catchUp(ctx, ended || changes.All || changes.Entries); err != nil {
			return err
		}
		if ended {
			if r.file == nil {
				return nil
			}
			return r.finish()
		}
		if err := r.print.flush(); err != nil {
			return err
		}
		var err error
		if changes, err = wait(); err != nil {
			return err
		}
	}
}

// catchUp prints up to the current end of the log. names means that files may have been
// created, removed or renamed. Without it, catchUp does not search for a successor.
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

// closeDeleted prints the rest of a file that was deleted and closes it, so that the
// kernel frees its space.
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

// ended reports whether Source.Ended is closed.
func (r *reader) ended() bool {
	select {
	case <-r.src.Ended: // a nil channel is never ready
		return true
	default:
		return false
	}
}

// wait blocks until a change or the end of the container, and returns all pending changes.
// When ctx ends, it returns the cause.
func (r *reader) wait(ctx context.Context, w *filewatch.Watch) (filewatch.Changes, error) {
	select {
	case <-ctx.Done():
		return filewatch.Changes{}, context.Cause(ctx)
	case <-r.src.Ended:
		return filewatch.Changes{All: true}, nil
	case <-w.Changed():
		return w.Take()
	}
}
