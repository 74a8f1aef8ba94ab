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

// rotate removes excess files, renames the log, makes the runtime open a new one, and
// compresses the log that was rotated before. The container must be running. If the log is
// missing, rotate only makes the runtime reopen it. If the runtime does not open a new one,
// rotate undoes the renaming. A file that could not be compressed stays plain, and the error
// reports it.
func (r *Rotator) rotate(ctx context.Context, containerID, path string) error {
	f, err := openLogDir(filepath.Dir(path))
	if err != nil {
		return err
	}
	defer f.close()
	base := filepath.Base(path)
	rotated, unused, err := f.list(base)
	if err != nil {
		return err
	}
	// MaxFiles includes the new log and the one rotated last. The latter may
	// exist already: if the agent was killed before the reopening, the
	// container still writes to it.
	keep, plain := r.cfg.MaxFiles-2, 0
	if _, err := f.root.Lstat(base); errors.Is(err, fs.ErrNotExist) {
		keep, plain = keep+1, 1
	}
	excess := r.excess(f, base, rotated, keep, plain)
	for _, p := range rotated[:excess] {
		unused = append(unused, p.name)
	}
	for _, name := range unused {
		if err := f.remove(name); err != nil {
			return err
		}
	}
	rotated = rotated[excess:]
	if err := r.renameAndReopen(ctx, f, containerID, base, nextStamp(time.Now(), rotated)); err != nil {
		return err
	}
	// Errors here leave plain files, which count like the others: a full disk
	// does not prevent the limit on a log.
	var errs []error
	for _, p := range rotated[:max(len(rotated)-plain, 0)] {
		if !p.compressed {
			errs = append(errs, f.compress(ctx, p.name))
		}
	}
	return errors.Join(errs...)
}

// excess returns how many of the oldest pieces to remove: those beyond keep,
// and those that exceed room because a container wrote far more than MaxSize
// between two checks. Such pieces are not compressed: that would take longer
// than writing the next one. The last inUse pieces are never included.
func (r *Rotator) excess(f *logDir, base string, pieces []rotatedFile, keep, inUse int) int {
	over := max(len(pieces)-keep, 0)
	total, room := f.size(base), int64(math.MaxInt64)
	if most := 2 * int64(r.cfg.MaxFiles); r.cfg.MaxSize <= math.MaxInt64/most {
		room = most * r.cfg.MaxSize
	}
	for i := len(pieces) - 1; i >= over; i-- {
		if total += f.size(pieces[i].name); total > room && i < len(pieces)-inUse {
			return i + 1
		}
	}
	return over
}

// renameAndReopen renames the log and makes the runtime open a new one.
func (r *Rotator) renameAndReopen(ctx context.Context, f *logDir, containerID, base, stamp string) error {
	rotated := base + "." + stamp
	err := f.rename(base, rotated)
	missing := errors.Is(err, fs.ErrNotExist)
	if err != nil && !missing {
		return err
	}
	if err = r.cfg.Reopen.ReopenContainerLog(ctx, containerID); err == nil {
		return f.sync()
	}
	err = fmt.Errorf("reopen log: %w", err)
	if missing {
		return err
	}
	// If a new log exists nevertheless, the renaming is not undone.
	if undo := f.rename(rotated, base); undo != nil && !errors.Is(undo, fs.ErrExist) {
		err = errors.Join(err, fmt.Errorf("undo rename: %w", undo))
	}
	return err
}
