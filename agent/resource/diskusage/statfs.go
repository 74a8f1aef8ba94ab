package diskusage

import (
	"errors"
	"io/fs"
	"time"

	"golang.org/x/sys/unix"
)

// fsInfo are the stats of a whole file system.
type fsInfo struct {
	at                             time.Time // zero means never
	available, capacity, used      uint64    // bytes
	inodes, inodesFree, inodesUsed uint64
	// hasInodes is false for file systems that allocate inodes on demand.
	hasInodes bool
}

// fsInfoOf converts the result of statfs(2).
func fsInfoOf(st *unix.Statfs_t, at time.Time) fsInfo {
	unit := uint64(max(st.Frsize, 0))
	if unit == 0 {
		unit = uint64(max(st.Bsize, 0))
	}
	free := min(st.Bfree, st.Blocks)
	return fsInfo{
		at:        at,
		available: min(st.Bavail, free) * unit, capacity: st.Blocks * unit, used: (st.Blocks - free) * unit,
		inodes: st.Files, inodesFree: min(st.Ffree, st.Files), inodesUsed: st.Files - min(st.Ffree, st.Files),
		hasInodes: st.Files > 0,
	}
}

// statfs calls statfs(2) for the file system that a path is on.
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
