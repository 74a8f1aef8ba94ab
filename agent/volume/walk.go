package volume

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// maxLevels bounds the directories that are open at once during a walk.
const maxLevels = 512

// errDeep says that a tree has more levels than are walked.
var errDeep = fmt.Errorf("it is deeper than %d directories", maxLevels)

// errStop ends a walk without an error.
var errStop = errors.New("stop")

// visit is called with what lies at name in the open directory dir, or with
// the directory itself, for which name is empty.
type visit func(dir int, name string, st *unix.Statx_t) error

// walk visits all below an open directory and then the directory itself,
// children before their parents. It follows no symbolic link and enters
// nothing that is mounted below (openat2(2)). What goes away meanwhile is left
// out. Memory does not grow with the number of files. Directories below
// maxLevels and those above them are not visited, and errDeep tells of them
// when all else was.
func walk(ctx context.Context, dir int, do visit) error {
	own, err := unix.FcntlInt(uintptr(dir), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return err
	}
	// The copy shares its position with dir.
	if _, err := unix.Seek(own, 0, io.SeekStart); err != nil {
		_ = unix.Close(own)
		return err
	}
	err = walkDir(ctx, os.NewFile(uintptr(own), "."), do, 0)
	if errors.Is(err, errStop) {
		return nil
	}
	return err
}

// walkDir walks one directory and closes it.
func walkDir(ctx context.Context, dir *os.File, do visit, level int) error {
	defer dir.Close()
	if level > maxLevels {
		return errDeep
	}
	fd := int(dir.Fd())
	var deep error
	for {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		names, err := dir.Readdirnames(batch)
		for _, name := range names {
			err := walkName(ctx, fd, name, do, level)
			if errors.Is(err, errDeep) {
				deep, err = err, nil
			}
			if err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
	}
	if deep != nil {
		return deep
	}
	var st unix.Statx_t
	if err := unix.Statx(fd, "", unix.AT_EMPTY_PATH, unix.STATX_BASIC_STATS, &st); err != nil {
		return err
	}
	return do(fd, "", &st)
}

func walkName(ctx context.Context, dir int, name string, do visit, level int) error {
	var st unix.Statx_t
	err := unix.Statx(dir, name, unix.AT_SYMLINK_NOFOLLOW|unix.AT_NO_AUTOMOUNT, unix.STATX_BASIC_STATS, &st)
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("%q: %w", name, err)
	}
	if st.Mode&unix.S_IFMT != unix.S_IFDIR {
		return do(dir, name, &st)
	}
	fd, err := openBeneath(dir, name)
	switch {
	case err == nil:
		return walkDir(ctx, os.NewFile(uintptr(fd), name), do, level+1)
	case isAny(err, unix.ENOENT, unix.ENOTDIR, unix.ELOOP, errMounted):
		return nil // gone, or another one by now, or another file system
	}
	return fmt.Errorf("%q: %w", name, err)
}
