package netns

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"

	"golang.org/x/sys/unix"
)

// folderMode lets everybody see the names, as /run/netns does; a namespace
// needs more than its file to be entered.
const folderMode = 0o755

// Create makes a new network namespace, in which nothing is but a loopback
// that is down, and pins it at path, in a folder that it makes. A path that is
// a pin already gives an error that is fs.ErrExist; an empty file, as a call
// that was killed leaves it, is taken over, and any other is refused. Calls
// for the same path exclude each other.
func Create(path string) error {
	if err := create(path); err != nil {
		return fmt.Errorf("create network namespace %s: %w", path, err)
	}
	return nil
}

func create(path string) error {
	if err := os.MkdirAll(filepath.Dir(path), folderMode); err != nil {
		return err
	}
	fd, err := retry(func() (int, error) {
		return unix.Open(path, unix.O_RDONLY|unix.O_CREAT|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0o444)
	})
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if isNSFS(fd) {
		return fs.ErrExist
	}
	if err := takeOver(fd, path); err != nil {
		return err
	}
	if err := pin(fd); err != nil {
		_ = unix.Unlink(path) // it is empty, and locked
		return err
	}
	return nil
}

// takeOver makes sure that the open file is nobody else's: empty, not just
// being pinned by another call, and not pinned or removed while that was
// waited for.
func takeOver(fd int, path string) error {
	if err := leftover(fd); err != nil {
		return err
	}
	if _, err := retry(func() (int, error) { return 0, unix.Flock(fd, unix.LOCK_EX) }); err != nil {
		return err
	}
	var own, now unix.Stat_t
	if err := unix.Fstat(fd, &own); err != nil {
		return err
	}
	if err := unix.Lstat(path, &now); err != nil {
		return err
	}
	if own.Dev != now.Dev || own.Ino != now.Ino {
		return fs.ErrExist
	}
	return nil
}

// leftover says whether an open file is what a pin is mounted on.
func leftover(fd int) error {
	var s unix.Stat_t
	if err := unix.Fstat(fd, &s); err != nil {
		return err
	}
	if s.Mode&unix.S_IFMT != unix.S_IFREG || s.Size != 0 {
		return fmt.Errorf("%w but something that is kept here: move it away", ErrNotNamespace)
	}
	return nil
}

// pin mounts a new namespace on an open file.
func pin(fd int) error {
	done := make(chan error, 1)
	go func() {
		// The thread is in the namespace for a moment. One that does not come
		// back stays locked, and ends with its goroutine.
		runtime.LockOSThread()
		home, err := os.Open(ownNamespace)
		if err != nil {
			runtime.UnlockOSThread()
			done <- err
			return
		}
		defer home.Close()
		err = pinThread(fd)
		if unix.Setns(int(home.Fd()), unix.CLONE_NEWNET) == nil {
			runtime.UnlockOSThread()
		}
		done <- err
	}()
	return <-done
}

// ownNamespace is the network namespace of the calling thread.
const ownNamespace = "/proc/thread-self/ns/net"

func pinThread(fd int) error {
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		return fmt.Errorf("unshare: %w", err)
	}
	if err := unix.Mount(ownNamespace, handle(fd), "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("bind mount: %w", err)
	}
	return nil
}

// Remove takes a pin away; the namespace ends when nobody uses it. It does not
// wait for that. A path that does not exist, or that is what a killed call has
// left, is no error; anything else is left alone, with ErrNotNamespace.
func Remove(path string) error {
	err := remove(path)
	if err == nil || errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return fmt.Errorf("remove network namespace %s: %w", path, err)
}

// mountsAtOnce bounds how many pins that lie on each other are taken away.
const mountsAtOnce = 16

func remove(path string) error {
	for range mountsAtOnce {
		pinned, err := inspect(path)
		if err != nil {
			return err
		}
		if !pinned {
			return unix.Unlink(path)
		}
		if err := unix.Unmount(path, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW); err != nil {
			return fmt.Errorf("unmount: %w", err)
		}
	}
	return fmt.Errorf("more than %d mounts lie on it", mountsAtOnce)
}

// inspect says whether a path is a pin, with an error unless it is that or
// what one is mounted on.
func inspect(path string) (pinned bool, err error) {
	at, err := find(path, unix.O_NOFOLLOW)
	if err != nil {
		return false, err
	}
	defer unix.Close(at)
	if !isNSFS(at) {
		return false, leftover(at)
	}
	fd, err := reopen(at)
	if err != nil {
		return false, err
	}
	unix.Close(fd)
	return true, nil
}
