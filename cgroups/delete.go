package cgroups

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// Delete removes the group and all below it, the leaves first. A group that
// is gone already is no error. It kills nothing: where processes are left it
// removes what it can and fails with ErrBusy. The root cannot be deleted.
func (t *Tree) Delete(path string) error {
	rel, err := relative(path)
	if err != nil {
		return err
	}
	if rel == "." {
		return fmt.Errorf("delete cgroup %s: it is the root", t.root)
	}
	return t.remove(filepath.Join(t.root, rel))
}

func (t *Tree) remove(dir string) error {
	// Most groups are leaves: try that before looking inside.
	err := t.rmdir(dir)
	switch {
	case err == nil, errors.Is(err, fs.ErrNotExist):
		return nil
	case !errors.Is(err, unix.EBUSY) && !errors.Is(err, unix.ENOTEMPTY):
		return fmt.Errorf("delete cgroup %s: %w", dir, err)
	}
	names, readErr := children(dir)
	if errors.Is(readErr, fs.ErrNotExist) {
		return nil
	}
	if readErr != nil {
		return fmt.Errorf("delete cgroup %s: %w", dir, readErr)
	}
	var errs []error
	for _, name := range names {
		errs = append(errs, t.remove(filepath.Join(dir, name)))
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	err = t.rmdir(dir) // what was below may also have gone by itself meanwhile
	switch {
	case err == nil, errors.Is(err, fs.ErrNotExist):
		return nil
	case errors.Is(err, unix.EBUSY), errors.Is(err, unix.ENOTEMPTY):
		return fmt.Errorf("delete cgroup %s: %w", dir, ErrBusy)
	default:
		return fmt.Errorf("delete cgroup %s: %w", dir, err)
	}
}

// Kill sends SIGKILL to every process in the group and below, all at once,
// and does not wait for their end: a Delete right after may still be
// ErrBusy. A group that is gone is no error. It needs Linux 5.14 for
// cgroup.kill.
func (t *Tree) Kill(path string) error {
	rel, err := relative(path)
	if err != nil {
		return err
	}
	if rel == "." {
		return fmt.Errorf("kill cgroup %s: it is the root", t.root)
	}
	dir := filepath.Join(t.root, rel)
	err = write(filepath.Join(dir, fileKill), "1")
	switch {
	case err == nil:
		return nil
	case errors.Is(err, fs.ErrNotExist):
		if _, statErr := os.Lstat(dir); errors.Is(statErr, fs.ErrNotExist) {
			return nil
		}
		return fmt.Errorf("kill cgroup %s: it has no %s, which needs Linux 5.14: %w", dir, fileKill, err)
	case errors.Is(err, unix.ENODEV): // deleted between open and write
		return nil
	default:
		return fmt.Errorf("kill cgroup %s: %w", dir, err)
	}
}
