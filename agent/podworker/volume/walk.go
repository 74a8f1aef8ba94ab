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
	// openLevels bounds the directories that are open at once during a walk.
	openLevels = 32
	// listBuffer holds what is read of a directory at a time, in bytes; there
	// is one for each open directory. It has room for seven of the longest
	// names.
	listBuffer = 2048
	// maxLevels bounds the memory of a walk: 16 bytes for each level.
	maxLevels = 1 << 16
)

// errDeep says that a tree has more levels than a payload can have.
var errDeep = errors.New("it is deeper than any path")

// errMoved says that a walk does not find its way back.
var errMoved = errors.New("a directory was moved while it was walked")

// visit is called with what lies at name in the open directory dir, or with
// the directory itself, for which name is empty.
type visit func(dir int, name string, st *unix.Statx_t) error

// walk visits all below an open directory and then the directory itself,
// children before their parents. It follows no symbolic link and enters
// nothing that is mounted below (openat2(2)). What goes away meanwhile is left
// out. Memory and open files do not grow with the number of files: a container
// makes as many as it likes, and as deep. Of more levels than maxLevels the
// deepest are left out; nobody makes so many but to disturb.
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

// walker is the state of a walk: the directories from the tree's own to the one
// that is read. The deepest are open; the way back to the others leads by "..".
type walker struct {
	do     visit
	closed []closedLevel // the upper ones
	open   []openLevel   // the deepest ones
	free   [][]byte
	st     unix.Statx_t
}

// closedLevel is what it takes to go on with a directory.
type closedLevel struct {
	ino uint64
	at  int64 // behind the entry that was entered
}

type openLevel struct {
	closedLevel
	fd   int
	buf  []byte // all of it
	rest []byte // what was not visited yet
}

// push takes an open directory over, to be read from a position on.
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

// step visits the entries that were read of the deepest directory, up to one
// that is a directory itself, or reads more of them.
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
		if err != nil && !errors.Is(err, unix.ENOENT) { // removed: it is empty
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

// visit visits what lies at a name, or enters it if that is a directory.
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
	case isAny(err, unix.ENOENT, unix.ENOTDIR, unix.ELOOP, errMounted):
		return false, nil // gone, or another one by now, or another file system
	}
	return false, fmt.Errorf("%q: %w", name, err)
}

// leave visits the deepest directory itself and goes back to its parent.
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
	if isAny(err, unix.ENOENT, unix.ESTALE, errMounted) {
		return errMoved
	}
	if err != nil {
		return fmt.Errorf("go back to the parent directory: %w", err)
	}
	if err := w.push(fd, parent.at); err != nil {
		return err
	}
	// A container may have moved the directory meanwhile, to where something
	// else lies above it: that is none of the tree.
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

// errEntry says that the kernel listed a directory in no known form.
var errEntry = errors.New("a directory entry of no known form")

// nextName takes the first entry off what getdents64(2) wrote: its name, and
// the position behind it.
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
