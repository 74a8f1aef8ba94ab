package cgroups

import (
	"errors"
	"fmt"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
)

// Attach moves a process with all its threads into the group, which has to
// exist; 0 is the caller. A process that has ended gives unix.ESRCH, a group
// that does not exist ErrNotFound.
func (t *Tree) Attach(path string, pid int) error {
	dir, err := t.dir(path)
	if err != nil {
		return err
	}
	err = write(filepath.Join(dir, fileProcs), strconv.Itoa(pid))
	if errors.Is(err, unix.ENOENT) {
		err = ErrNotFound
	}
	if err != nil {
		return fmt.Errorf("move process %d into cgroup %s: %w", pid, dir, err)
	}
	return nil
}
