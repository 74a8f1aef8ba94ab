// Package netns owns pinned network namespaces: making them, each kept alive
// by a bind mount on a file, opening, telling apart, listing and removing
// them. It knows nothing of what is in them, and keeps no state beside the
// kernel's.
//
// A pin has the propagation of the mount that its folder is on: where that is
// shared, as systemd makes it, other mount namespaces see the pin; where it is
// private, only those do that are made later. Removing it works in either case,
// for the kernel takes all mounts of all mount namespaces off a file that is
// unlinked (__detach_mounts in fs/namespace.c).
package netns

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// ErrNotNamespace says that something is no network namespace.
var ErrNotNamespace = errors.New("not a network namespace")

// Open opens the network namespace that is pinned at path, or that a process
// is in (/proc/PID/ns/net). The errors are ErrNotNamespace and fs.ErrNotExist,
// wrapped, beside those of the system.
//
// Links are followed: those of /proc are links that only the kernel can
// follow. What is there is therefore looked at before it is opened, since to
// open a device may be to start it, and to open a pipe may be to wait.
func Open(path string) (*os.File, error) {
	at, err := find(path, 0)
	if err != nil {
		return nil, fmt.Errorf("open network namespace %s: %w", path, err)
	}
	defer unix.Close(at)
	fd, err := reopen(at)
	if err != nil {
		return nil, fmt.Errorf("open network namespace %s: %w", path, err)
	}
	return os.NewFile(uintptr(fd), path), nil
}

// find takes hold of a path without opening what is there.
func find(path string, flags int) (int, error) {
	return retry(func() (int, error) { return unix.Open(path, unix.O_PATH|unix.O_CLOEXEC|flags, 0) })
}

// reopen opens what find has found, if it is a network namespace.
func reopen(at int) (int, error) {
	if !isNSFS(at) {
		return -1, ErrNotNamespace
	}
	fd, err := retry(func() (int, error) { return unix.Open(handle(at), unix.O_RDONLY|unix.O_CLOEXEC, 0) })
	if err != nil {
		return -1, err
	}
	kind, err := unix.IoctlRetInt(fd, unix.NS_GET_NSTYPE)
	switch {
	case err != nil:
		err = fmt.Errorf("%w: ask for its kind: %w", ErrNotNamespace, err)
	case kind != unix.CLONE_NEWNET:
		err = fmt.Errorf("%w but one of another kind (%#x)", ErrNotNamespace, kind)
	default:
		return fd, nil
	}
	unix.Close(fd)
	return -1, err
}

// isNSFS says whether an open file is of the file system of namespaces.
func isNSFS(fd int) bool {
	var s unix.Statfs_t
	_, err := retry(func() (int, error) { return 0, unix.Fstatfs(fd, &s) })
	return err == nil && uint32(s.Type) == unix.NSFS_MAGIC
}

// handle is a path to an open file that leads nowhere else.
func handle(fd int) string { return "/proc/thread-self/fd/" + strconv.Itoa(fd) }

func retry(do func() (int, error)) (int, error) {
	for {
		n, err := do()
		if !errors.Is(err, unix.EINTR) {
			return n, err
		}
	}
}

// ID tells a namespace from all others that live at the same time.
type ID struct{ Device, Inode uint64 }

// IDOf is the ID of an open namespace.
func IDOf(ns *os.File) (ID, error) {
	var s unix.Stat_t
	if err := unix.Fstat(int(ns.Fd()), &s); err != nil {
		return ID{}, fmt.Errorf("identify network namespace %s: %w", ns.Name(), err)
	}
	return ID{uint64(s.Dev), s.Ino}, nil
}

// Same says whether two open namespaces are one. What cannot be asked is not
// the same as anything.
func Same(a, b *os.File) bool {
	x, errA := IDOf(a)
	y, errB := IDOf(b)
	return errA == nil && errB == nil && x == y
}

// List names the pins in a folder, sorted, with what calls that were killed
// have left of theirs: Remove is for both, and Open tells them apart. A folder
// that does not exist has none.
func List(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list network namespaces: %w", err)
	}
	var names []string
	for _, e := range entries {
		// This is the kind of the file below the mount.
		if e.Type().IsRegular() {
			names = append(names, e.Name())
		}
	}
	return names, nil
}
