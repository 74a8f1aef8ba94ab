package journal

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"

	"github.com/tinylet/tinylet/agent/store/atomicfile"
)

// disk is one directory. Tests have a second implementation, which simulates
// power cuts, full disks and failing operations.
type disk interface {
	// open opens a file of the directory and returns its size in bytes. flag is as in
	// os.OpenFile. A file that it creates has mode 0600.
	open(name string, flag int) (f file, size int64, err error)
	// rename replaces a file by another, atomically. After an error either
	// file may have the name.
	rename(from, to string) error
	// remove removes a file. A missing one is no error.
	remove(name string) error
	// sync returns when the directory's entries are on the disk. After an error
	// it must not be called again: success of a later call proves nothing.
	sync() error
	// close closes the directory. Open files stay open.
	close() error
}

// file is an open file of a disk. After an error of Sync or Datasync, the
// content of the file on the disk is unknown, and a later call does not change
// that.
type file interface {
	io.ReaderAt
	io.WriterAt
	io.Closer
	Truncate(size int64) error
	// Sync returns when the whole file is on the disk.
	Sync() error
	// Datasync is Sync without the metadata that reading the file does not
	// need.
	Datasync() error
}

// directory implements disk with a directory of the file system.
type directory struct {
	root *os.Root
	dir  *os.File
}

// openDirectory opens the directory, which it creates if it is missing, and locks
// it.
func openDirectory(path string) (*directory, error) {
	if err := atomicfile.MkdirAll(path, 0o700); err != nil {
		return nil, err
	}
	root, err := os.OpenRoot(path)
	if err != nil {
		return nil, err
	}
	dir, err := root.Open(".")
	if err == nil {
		err = lock(dir)
		if err == nil {
			return &directory{root: root, dir: dir}, nil
		}
		_ = dir.Close() // nothing was done with it
	}
	_ = root.Close() // nothing was done with it
	return nil, err
}

// Remove removes the journal in a directory, and the directory if nothing else is
// in it. The error wraps ErrLocked if the journal is open.
func Remove(dir string) error {
	f, err := openDirectory(dir)
	if err != nil {
		return fmt.Errorf("remove journal in %q: %w", dir, err)
	}
	if err := errors.Join(f.remove(newName), f.remove(fileName), f.sync(), f.close()); err != nil {
		return fmt.Errorf("remove journal in %q: %w", dir, err)
	}
	if err := os.Remove(dir); err != nil && !errors.Is(err, unix.ENOTEMPTY) {
		return err
	}
	return nil
}

// lock locks the directory against a second agent: two agents that append would
// destroy each other's batches. It returns ErrLocked if the lock is held.
func lock(dir *os.File) error {
	err := flock(dir, unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return ErrLocked
	}
	if errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.ENOLCK) {
		return nil // the file system has no locks
	}
	return err
}

func flock(dir *os.File, how int) error {
	for {
		err := unix.Flock(int(dir.Fd()), how)
		if !errors.Is(err, unix.EINTR) {
			return os.NewSyscallError("flock", err)
		}
	}
}

func (f *directory) open(name string, flag int) (file, int64, error) {
	opened, err := f.root.OpenFile(name, flag|unix.O_NONBLOCK, 0o600)
	if err != nil {
		return nil, 0, err
	}
	info, err := opened.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = &fs.PathError{Op: "open", Path: name, Err: errors.New("not a regular file")}
	}
	if err != nil {
		_ = opened.Close() // nothing was done with it
		return nil, 0, err
	}
	return osFile{opened}, info.Size(), nil
}

func (f *directory) rename(from, to string) error { return f.root.Rename(from, to) }

func (f *directory) remove(name string) error {
	if err := f.root.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

func (f *directory) sync() error { return f.dir.Sync() }

func (f *directory) close() error {
	// Unlock explicitly: a child process that was just forked may still hold
	// the descriptor, and with it the lock.
	err := flock(f.dir, unix.LOCK_UN)
	if err != nil {
		err = fmt.Errorf("unlock: %w", err)
	}
	return errors.Join(err, f.dir.Close(), f.root.Close())
}

// osFile implements file with a file of the file system.
type osFile struct{ *os.File }

// Datasync calls fdatasync(2).
func (f osFile) Datasync() error {
	for {
		err := unix.Fdatasync(int(f.Fd()))
		if err == nil {
			return nil
		}
		if !errors.Is(err, unix.EINTR) {
			return &fs.PathError{Op: "fdatasync", Path: f.Name(), Err: err}
		}
	}
}
