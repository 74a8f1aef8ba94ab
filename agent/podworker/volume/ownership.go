package volume

import (
	"context"
	"errors"
	"fmt"
	"math"

	"golang.org/x/sys/unix"

	"github.com/tinylet/tinylet/agent/resource/diskusage"
)

// Mode bits that an fsGroup adds to the files of a writable volume
// (pkg/volume/volume_linux.go).
const (
	groupFileBits = 0o660
	groupDirBits  = unix.S_ISGID | 0o770
)

// setTreeGroup sets the group of all files in an open directory and lets the group
// read and write them. The directory itself is last. If rootMismatch is set and the
// directory has the group and the mode bits already, setTreeGroup does nothing. It changes
// symbolic links, but does not follow them, and does not enter mounts below.
func setTreeGroup(ctx context.Context, dir, group int, rootMismatch bool) error {
	var st unix.Statx_t
	if err := unix.Statx(dir, "", unix.AT_EMPTY_PATH, unix.STATX_BASIC_STATS, &st); err != nil {
		return err
	}
	if rootMismatch && int64(st.Gid) == int64(group) && st.Mode&groupDirBits == groupDirBits {
		return nil
	}
	return walk(ctx, dir, func(dir int, name string, st *unix.Statx_t) error {
		if err := setFileGroup(dir, name, group, st); err != nil {
			if name == "" {
				return err
			}
			return fmt.Errorf("%q: %w", name, err)
		}
		return nil
	})
}

// walk visits everything below an open directory and then the directory itself, children
// before their parents, until an error. It follows no symbolic link and does not enter
// mounts. Memory and open files do not grow with the number and depth of the files, which a
// container controls. Directories that are too deep for a diskusage.Walk are skipped: only
// a hostile container creates them.
func walk(ctx context.Context, dir int, visit func(dir int, name string, st *unix.Statx_t) error) error {
	var failed error
	w := &diskusage.Walk{Visit: func(dir int, name string, st *unix.Statx_t) {
		if failed == nil {
			failed = visit(dir, name, st)
		}
	}}
	defer w.Drop()
	_, done := new(diskusage.Walker).Step(w, dir, math.MaxInt, func() bool { return failed != nil || ctx.Err() != nil })
	switch err := w.Err(); {
	case failed != nil:
		return failed
	case !done:
		return context.Cause(ctx)
	case !errors.Is(err, diskusage.ErrDeep):
		return err
	}
	return nil
}

// setFileGroup sets one file's group and mode, unless they are set already. name is empty
// for the directory itself. It opens the file with O_PATH, so that a container cannot
// replace it in between.
func setFileGroup(dir int, name string, group int, st *unix.Statx_t) error {
	kind := uint32(st.Mode) & unix.S_IFMT
	bits := uint32(groupFileBits)
	if kind == unix.S_IFDIR {
		bits = groupDirBits
	}
	mode := uint32(st.Mode) & 0o7777
	done := int64(st.Gid) == int64(group)
	if done && (kind == unix.S_IFLNK || mode&bits == bits) {
		return nil
	}
	if kind == unix.S_IFLNK {
		return ignoreGone(unix.Fchownat(dir, name, -1, group, unix.AT_SYMLINK_NOFOLLOW))
	}
	fd := dir
	if name != "" {
		var err error
		fd, err = unix.Openat(dir, name, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
		if err != nil {
			return ignoreGone(err)
		}
		defer unix.Close(fd)
		var now unix.Stat_t
		if err := unix.Fstat(fd, &now); err != nil {
			return err
		}
		if now.Ino != st.Ino || now.Mode&unix.S_IFMT != kind {
			return nil // replaced by another file since
		}
	}
	if err := unix.Fchownat(fd, "", -1, group, unix.AT_EMPTY_PATH); err != nil {
		return err
	}
	// The change of the group has cleared the set-ID bits.
	return unix.Fchmodat(unix.AT_FDCWD, fmt.Sprintf("/proc/self/fd/%d", fd), mode|bits, 0)
}

func ignoreGone(err error) error {
	if errorIsAny(err, unix.ENOENT, unix.ELOOP) {
		return nil
	}
	return err
}
