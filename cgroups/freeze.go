package cgroups

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// Freeze has all processes of the group and below stand still, or go on. It
// does not wait for it: WatchState tells when all of them stand. Frozen
// processes can be killed. A group that does not exist gives ErrNotFound, and
// the root cannot be frozen.
func (t *Tree) Freeze(path string, frozen bool) error {
	rel, err := relative(path)
	if err != nil {
		return err
	}
	if rel == "." {
		return fmt.Errorf("freeze cgroup %s: it is the root", t.root)
	}
	value := "0"
	if frozen {
		value = "1"
	}
	file := filepath.Join(t.root, rel, fileFreeze)
	err = write(file, value)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if why := whyMissing(file); errors.Is(why, ErrNotFound) {
			err = why
		}
	case errors.Is(err, unix.ENODEV): // deleted between open and write
		err = ErrNotFound
	}
	if err != nil {
		return fmt.Errorf("freeze cgroup %s: %w", filepath.Dir(file), err)
	}
	return nil
}
