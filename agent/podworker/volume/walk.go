package volume

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"golang.org/x/sys/unix"
)

const (
	// openLevels is the maximum number of directories that are open at once
	// during a walk.
	openLevels = 32
	// listBuffer is the size in bytes of the getdents64 buffer of each open
	// directory. It has room for seven names of maximum length.
	listBuffer = 2048
	// maxLevels limits the memory of a walk, which needs 16 bytes per level.
	maxLevels = 1 << 16
)

// errTooDeep means that a tree has more levels than a payload can have.
var errTooDeep = errors.New("directory tree is too deep")

// errMoved means that a walk cannot return to the parent directory.
var errMoved = errors.New("directory was moved during the walk")

// visit is called with the entry name in the open directory dir, or with the
// directory itself, for which name is empty.
type visit func(dir int, name string, st *unix.Statx_t) error

// walk visits everything below an open directory and then the directory itself,
// children before their parents. It follows no symbolic link and does not enter
// mounts (openat2(2)). It skips entries that are removed during the walk. Memory
// and open files do not grow with the number of files, because a container can
// create any number of files at any depth. Directories deeper than maxLevels are
// skipped: only a hostile container creates them.
func walk(ctx context.Context, dir int, do visit) error {
	own, err := unix.FcntlInt(uintptr(dir), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return err
	}
	w := &walker{do: do}
	defer w.close()
	// The copy shares its position with dir.
	if err := w.push(own, 0); err != nil {
		return err
	}
	for len(w.open) > 0 {
		if err := w.step(ctx); err != nil {
			return err
		}
	}
	return nil
}

// walker is the state of a walk: the directories from the root of the tree to the
// current one. Only the deepest are open; leave reopens the others through "..".
type walker struct {
	do     visit
	closed []closedLevel // the upper ones
	open   []openLevel   // the deepest ones
	free   [][]byte
	st     unix.Statx_t
}

// closedLevel is the state that is needed to continue reading a directory.
type closedLevel struct {
	ino uint64
	at  int64 // position after the entry that was entered
}

type openLevel struct {
	closedLevel
	fd   int
	buf  []byte // the whole buffer
	rest []byte // entries that were not visited yet
}

// push makes an open directory the current one, to be read from position at. It
// takes ownership of fd, and closes it on an error.
func (w *walker) push(fd int, at int64) error {
	if _, err := unix.Seek(fd, at, io.SeekStart); err != nil {
		_ = unix.Close(fd)
		return err
	}
	if err := unix.Statx(fd, "", unix.AT_EMPTY_PATH, unix.STATX_INO, &w.st); err != nil {
		_ = unix.Close(fd)
		return err
	}
	if len(w.open) == openLevels {
		upper := &w.open[0]
		_ = unix.Close(upper.fd)
		w.closed = append(w.closed, upper.closedLevel)
		w.free = append(w.free, upper.buf)
		w.open = append(w.open[:0], w.open[1:]...)
	}
	var buf []byte
	if n := len(w.free); n > 0 {
		buf, w.free = w.free[n-1], w.free[:n-1]
	} else {
		buf = make([]byte, listBuffer)
	}
	w.open = append(w.open, openLevel{closedLevel: closedLevel{w.st.Ino, at}, fd: fd, buf: buf})
	return nil
}

// step visits the buffered entries of the current directory until it enters a
// subdirectory. It reads more entries if the buffer is empty.
func (w *walker) step(ctx context.Context) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	top := &w.open[len(w.open)-1]
	if len(top.rest) == 0 {
		n, err := unix.Getdents(top.fd, top.buf)
		if errors.Is(err, unix.EINTR) {
			return nil
		}
		if err != nil && !errors.Is(err, unix.ENOENT) { // ENOENT: removed, so empty
			return fmt.Errorf("read directory: %w", err)
		}
		if n <= 0 {
			return w.leave()
		}
		top.rest = top.buf[:n]
	}
	for len(top.rest) > 0 {
		name, at, rest, ok := nextName(top.rest)
		if !ok {
			return errEntry
		}
		top.rest, top.at = rest, at
		if len(name) == 1 && name[0] == '.' || len(name) == 2 && name[0] == '.' && name[1] == '.' {
			continue
		}
		if entered, err := w.visit(top.fd, string(name)); entered || err != nil {
			return err
		}
	}
	return nil
}

// visit visits an entry, or enters it if it is a directory.
func (w *walker) visit(dir int, name string) (entered bool, err error) {
	err = unix.Statx(dir, name, unix.AT_SYMLINK_NOFOLLOW|unix.AT_NO_AUTOMOUNT, unix.STATX_BASIC_STATS, &w.st)
	if errors.Is(err, unix.ENOENT) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("%q: %w", name, err)
	}
	if w.st.Mode&unix.S_IFMT != unix.S_IFDIR {
		return false, w.do(dir, name, &w.st)
	}
	if len(w.closed)+len(w.open) > maxLevels {
		return false, nil
	}
	fd, err := openBeneath(dir, name)
	if err == nil {
		err = w.push(fd, 0)
	}
	switch {
	case err == nil:
		return true, nil
	case errorIsAny(err, unix.ENOENT, unix.ENOTDIR, unix.ELOOP, errMounted):
		return false, nil // removed, replaced, or a mount point
	}
	return false, fmt.Errorf("%q: %w", name, err)
}

// leave visits the current directory itself and returns to its parent. It reopens
// the parent if that is closed.
func (w *walker) leave() error {
	top := &w.open[len(w.open)-1]
	if err := unix.Statx(top.fd, "", unix.AT_EMPTY_PATH, unix.STATX_BASIC_STATS, &w.st); err != nil {
		return err
	}
	if err := w.do(top.fd, "", &w.st); err != nil {
		return err
	}
	if len(w.open) > 1 || len(w.closed) == 0 {
		w.pop()
		return nil
	}
	parent := w.closed[len(w.closed)-1]
	w.closed = w.closed[:len(w.closed)-1]
	fd, err := openat2(top.fd, "..", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, unix.RESOLVE_NO_XDEV|unix.RESOLVE_NO_SYMLINKS|unix.RESOLVE_NO_MAGICLINKS)
	w.pop()
	if errorIsAny(err, unix.ENOENT, unix.ESTALE, errMounted) {
		return errMoved
	}
	if err != nil {
		return fmt.Errorf("reopen parent directory: %w", err)
	}
	if err := w.push(fd, parent.at); err != nil {
		return err
	}
	// A container may have moved the directory to another parent, which may be
	// outside the tree.
	if w.st.Ino != parent.ino {
		return errMoved
	}
	return nil
}

func (w *walker) pop() {
	top := &w.open[len(w.open)-1]
	_ = unix.Close(top.fd)
	w.free = append(w.free, top.buf)
	w.open = w.open[:len(w.open)-1]
}

func (w *walker) close() {
	for len(w.open) > 0 {
		w.pop()
	}
}

// errEntry means that getdents64(2) returned a malformed entry.
var errEntry = errors.New("malformed directory entry")

// nextName parses the first entry in a buffer of getdents64(2). It returns the
// name, the position after the entry and the rest of the buffer.
func nextName(buf []byte) (name []byte, at int64, rest []byte, ok bool) {
	const header = 19 // inode, position of the next entry, length, type
	if len(buf) <= header {
		return nil, 0, nil, false
	}
	length := int(binary.NativeEndian.Uint16(buf[16:]))
	if length <= header || length > len(buf) {
		return nil, 0, nil, false
	}
	name, _, _ = bytes.Cut(buf[header:length], []byte{0})
	return name, int64(binary.NativeEndian.Uint64(buf[8:])), buf[length:], true //nolint:gosec // the kernel's own loff_t
}
