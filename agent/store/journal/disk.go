package journal

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// disk is one folder. The second implementation is a model that loses power,
// space and patience in tests.
type disk interface {
	// open opens a file of the folder; flag is as in os.OpenFile, and what is
	// made has mode 0600.
	open(name string, flag int) (file, error)
	// rename replaces a file by another, atomically; after an error either
	// may bear the name.
	rename(from, to string) error
	// remove fails with fs.ErrNotExist where there is no such file.
	remove(name string) error
	// sync returns when the folder's names are on the disk. After an error it
	// must not be called again in the hope that it does better.
	sync() error
	// close ends all; files that are open stay so.
	close() error
}

// file is an open file of a disk. After an error of Sync or Datasync, what the
// disk has of the file is not known, and a later call does not tell.
type file interface {
	io.ReaderAt
	io.WriterAt
	io.Closer
	Truncate(size int64) error
	// Sync returns when all of the file is on the disk.
	Sync() error
	// Datasync is Sync but for what is not needed to read the file back.
	Datasync() error
	// Size is the file's length in bytes.
	Size() (int64, error)
}

// folder is the disk that is one.
type folder struct {
	root *os.Root
	dir  *os.File
}

// openFolder opens the folder, which it makes if it is missing, and locks it.
func openFolder(path string) (*folder, error) {
	if err := makeFolder(path); err != nil {
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
			return &folder{root: root, dir: dir}, nil
		}
		_ = dir.Close() // nothing was done with it
	}
	_ = root.Close() // nothing was done with it
	return nil, err
}

// Remove removes the journal in a folder, and the folder if nothing else is in
// it. The error wraps ErrLocked if it is open.
func Remove(dir string) error {
	f, err := openFolder(dir)
	if err != nil {
		return fmt.Errorf("remove journal in %q: %w", dir, err)
	}
	for _, name := range []string{newName, fileName} {
		if removeErr := f.remove(name); removeErr != nil && !errors.Is(removeErr, fs.ErrNotExist) {
			err = errors.Join(err, removeErr)
		}
	}
	if err = errors.Join(err, f.sync(), f.close()); err != nil {
		return fmt.Errorf("remove journal in %q: %w", dir, err)
	}
	if err := os.Remove(dir); err != nil && !errors.Is(err, unix.ENOTEMPTY) {
		return err
	}
	return nil
}

// makeFolder makes the folder and those above it, down to the disk. Those that
// exist are left as they are.
func makeFolder(path string) error {
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	above := filepath.Dir(path)
	if above != path {
		if err := makeFolder(above); err != nil {
			return err
		}
	}
	if err := os.Mkdir(path, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	dir, err := os.Open(above)
	if err != nil {
		return err
	}
	defer dir.Close()
	return dir.Sync()
}

// lock keeps a second agent out: two that append would destroy each other's
// batches.
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

func (f *folder) open(name string, flag int) (file, error) {
	opened, err := f.root.OpenFile(name, flag|unix.O_NONBLOCK, 0o600)
	if err != nil {
		return nil, err
	}
	info, err := opened.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = &fs.PathError{Op: "open", Path: name, Err: errors.New("not a regular file")}
	}
	if err != nil {
		_ = opened.Close() // nothing was done with it
		return nil, err
	}
	return osFile{opened}, nil
}

func (f *folder) rename(from, to string) error { return f.root.Rename(from, to) }

func (f *folder) remove(name string) error { return f.root.Remove(name) }

func (f *folder) sync() error { return f.dir.Sync() }

func (f *folder) close() error {
	// A child that was just forked may still hold the descriptor, and with it
	// the lock.
	err := flock(f.dir, unix.LOCK_UN)
	if err != nil {
		err = fmt.Errorf("unlock: %w", err)
	}
	return errors.Join(err, f.dir.Close(), f.root.Close())
}

// osFile is the file that is one.
type osFile struct{ *os.File }

// Datasync is fdatasync(2).
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

// Size is what stat(2) says.
func (f osFile) Size() (int64, error) {
	info, err := f.Stat()
	if err != nil {
		return 0, err
	}
	return info.Size(), nil
}
