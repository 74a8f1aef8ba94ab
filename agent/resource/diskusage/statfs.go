package diskusage

import (
	"errors"
	"io/fs"
	"time"

	"golang.org/x/sys/unix"
)

// figures are those of a whole file system.
type figures struct {
	at                             time.Time // zero is never
	available, capacity, used      uint64    // bytes
	inodes, inodesFree, inodesUsed uint64
	// hasInodes is false for those that make inodes as they need them.
	hasInodes bool
}

// figuresOf makes figures of what statfs(2) says.
func figuresOf(st *unix.Statfs_t, at time.Time) figures {
	unit := uint64(max(st.Frsize, 0))
	if unit == 0 {
		unit = uint64(max(st.Bsize, 0))
	}
	free := min(st.Bfree, st.Blocks)
	return figures{
		at:        at,
		available: min(st.Bavail, free) * unit, capacity: st.Blocks * unit, used: (st.Blocks - free) * unit,
		inodes: st.Files, inodesFree: min(st.Ffree, st.Files), inodesUsed: st.Files - min(st.Ffree, st.Files),
		hasInodes: st.Files > 0,
	}
}

// statfs asks the kernel about the file system that a path is on.
func statfs(path string, into *unix.Statfs_t) error {
	for {
		err := unix.Statfs(path, into)
		if err == nil {
			return nil
		}
		if !errors.Is(err, unix.EINTR) {
			return &fs.PathError{Op: "statfs", Path: path, Err: err}
		}
	}
}
