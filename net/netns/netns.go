// Package netns owns access to network namespaces: it opens one by its path and
// runs functions in it. It keeps no state.
//
// It does not use github.com/vishvananda/netns, whose GetFromPath opens what is at
// the path without a check: opening a device can start it, and opening a FIFO can
// block. Its Set leaves a thread of the Go scheduler in the wrong namespace if the
// way back fails.
package netns

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"strconv"

	"golang.org/x/sys/unix"
)

// ErrNotNamespace means that a file is not a network namespace.
var ErrNotNamespace = errors.New("not a network namespace")

// Open opens the network namespace that is bind-mounted at path, or that of a
// process (/proc/PID/ns/net). It follows symbolic links, because those in /proc are
// resolved by the kernel alone. Errors wrap ErrNotNamespace, fs.ErrNotExist or an
// error of the system. Files of other types are not opened.
func Open(path string) (*os.File, error) {
	fd, err := open(path)
	if err != nil {
		return nil, fmt.Errorf("open network namespace %s: %w", path, err)
	}
	return os.NewFile(uintptr(fd), path), nil
}

// open gets an O_PATH descriptor, which has no effect on the file, and opens the
// file behind it if it is a network namespace.
func open(path string) (int, error) {
	at, err := retry(func() (int, error) { return unix.Open(path, unix.O_PATH|unix.O_CLOEXEC, 0) })
	if err != nil {
		return -1, err
	}
	defer unix.Close(at)
	if !onNSFS(at) {
		return -1, ErrNotNamespace
	}
	same := "/proc/thread-self/fd/" + strconv.Itoa(at)
	fd, err := retry(func() (int, error) { return unix.Open(same, unix.O_RDONLY|unix.O_CLOEXEC, 0) })
	if err != nil {
		return -1, err
	}
	kind, err := unix.IoctlRetInt(fd, unix.NS_GET_NSTYPE)
	switch {
	case err != nil:
		err = fmt.Errorf("%w: read namespace type: %w", ErrNotNamespace, err)
	case kind != unix.CLONE_NEWNET:
		err = fmt.Errorf("%w: namespace of type %#x", ErrNotNamespace, kind)
	default:
		return fd, nil
	}
	unix.Close(fd)
	return -1, err
}

// onNSFS reports whether an open file is on nsfs, the file system of namespaces.
func onNSFS(fd int) bool {
	var s unix.Statfs_t
	_, err := retry(func() (int, error) { return 0, unix.Fstatfs(fd, &s) })
	return err == nil && uint32(s.Type) == unix.NSFS_MAGIC
}

func retry(do func() (int, error)) (int, error) {
	for {
		n, err := do()
		if !errors.Is(err, unix.EINTR) {
			return n, err
		}
	}
}

// ownNamespace is the network namespace of the calling thread.
const ownNamespace = "/proc/thread-self/ns/net"

// Do calls f on a thread in the network namespace open as ns, and returns its error.
// f must start no goroutine that depends on the namespace. f must return: if it ends
// its goroutine (t.Skip, t.Fatal), Do blocks forever. If the thread cannot return to
// its own namespace, it ends.
func Do(ns *os.File, f func() error) error {
	done := make(chan error, 1)
	go func() { done <- onThread(ns, f) }()
	return <-done
}

// onThread locks the calling goroutine to its thread. The runtime ends the thread of
// a goroutine that ends while it is locked.
func onThread(ns *os.File, f func() error) error {
	runtime.LockOSThread()
	home, err := os.Open(ownNamespace)
	if err != nil {
		runtime.UnlockOSThread()
		return fmt.Errorf("enter network namespace: %w", err)
	}
	defer home.Close()
	if err := unix.Setns(int(ns.Fd()), unix.CLONE_NEWNET); err != nil {
		runtime.UnlockOSThread()
		return fmt.Errorf("enter network namespace %s: %w", ns.Name(), err)
	}
	err = f()
	if unix.Setns(int(home.Fd()), unix.CLONE_NEWNET) == nil {
		runtime.UnlockOSThread()
	}
	return err
}
