package logrotate

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"path/filepath"
	"time"
)

// rotate makes room, gives the log another name, has the runtime begin a new
// one, and compresses the log that was rotated before. The old name comes
// back if the runtime does not begin anew.
func (r *Rotator) rotate(ctx context.Context, containerID, path string) error {
	f, err := openFolder(filepath.Dir(path))
	if err != nil {
		return err
	}
	defer f.close()
	base := filepath.Base(path)
	rotated, unused, err := f.list(base)
	if err != nil {
		return err
	}
	// The new log and the one that was rotated last are among MaxFiles. That
	// one may be there already: an agent was killed before the reopening, and
	// the container still writes to it.
	keep, plain := r.cfg.MaxFiles-2, 0
	if _, err := f.root.Lstat(base); errors.Is(err, fs.ErrNotExist) {
		keep, plain = keep+1, 1
	}
	excess := r.excess(f, base, rotated, keep, plain)
	for _, name := range append(unused, names(rotated[:excess])...) {
		if err := f.remove(name); err != nil {
			return err
		}
	}
	rotated = rotated[excess:]
	if err := r.swap(ctx, f, containerID, base, nextStamp(time.Now(), rotated)); err != nil {
		return err
	}
	// Errors here leave plain files, which count as the others do: a full
	// disk does not keep a log from being bounded.
	var errs []error
	for _, p := range rotated[:max(len(rotated)-plain, 0)] {
		if !p.compressed {
			errs = append(errs, f.compress(ctx, p.name))
		}
	}
	return errors.Join(errs...)
}

// excess is how many of the oldest pieces go: those beyond keep, and those for
// which there is no room, since a container wrote far more than MaxSize before
// it was looked at. Such pieces are never compressed, which would take longer
// than the next one takes to be written. The last inUse pieces are not among
// them.
func (r *Rotator) excess(f *folder, base string, pieces []piece, keep, inUse int) int {
	over := max(len(pieces)-keep, 0)
	total, room := f.size(base), r.cfg.room()
	for i := len(pieces) - 1; i >= over; i-- {
		if total += f.size(pieces[i].name); total > room && i < len(pieces)-inUse {
			return i + 1
		}
	}
	return over
}

// room is how much the rotated logs of one container may take on the disk.
func (c *Config) room() int64 {
	pieces := 2 * int64(c.MaxFiles)
	if c.MaxSize < 0 || c.MaxSize > math.MaxInt64/pieces {
		return math.MaxInt64
	}
	return c.MaxSize * pieces
}

// swap renames the log and has the runtime begin a new one.
func (r *Rotator) swap(ctx context.Context, f *folder, containerID, base, stamp string) error {
	rotated := base + "." + stamp
	err := f.rename(base, rotated)
	missing := errors.Is(err, fs.ErrNotExist)
	if err != nil && !missing {
		return err
	}
	if err = r.cfg.Reopen.ReopenContainerLog(ctx, containerID); err == nil {
		return f.sync()
	}
	err = fmt.Errorf("have the runtime reopen it: %w", err)
	if missing {
		return err
	}
	// If a new log is there after all, the rotation stands.
	if undo := f.rename(rotated, base); undo != nil && !errors.Is(undo, fs.ErrExist) {
		err = errors.Join(err, fmt.Errorf("give it its name back: %w", undo))
	}
	return err
}

func names(pieces []piece) []string {
	out := make([]string, len(pieces))
	for i := range pieces {
		out[i] = pieces[i].name
	}
	return out
}
