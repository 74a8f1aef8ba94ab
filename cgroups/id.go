package cgroups

import (
	"errors"
	"fmt"
	"io/fs"

	"golang.org/x/sys/unix"
)

// ID is the kernel's number of a group: a later group at the same path has
// another one (kernfs numbers its inodes on and on). A group that does not
// exist gives ErrNotFound.
func (t *Tree) ID(path string) (uint64, error) {
	dir, err := t.dir(path)
	if err != nil {
		return 0, err
	}
	var st unix.Stat_t
	if _, err := retry(func() (int, error) { return 0, unix.Lstat(dir, &st) }); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			err = ErrNotFound
		}
		return 0, fmt.Errorf("number of cgroup %s: %w", dir, err)
	}
	return st.Ino, nil
}

// ID is Tree.ID.
func (s *Slices) ID(path string) (uint64, error) { return s.tree.ID(path) }
