package logrotate

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

// logDir is the log directory of one container. Links that lead out of it are
// not followed.
type logDir struct {
	root *os.Root
	dir  *os.File
}

func openLogDir(path string) (*logDir, error) {
	root, err := os.OpenRoot(path)
	if err != nil {
		return nil, fmt.Errorf("open log directory: %w", err)
	}
	dir, err := root.Open(".")
	if err != nil {
		_ = root.Close() // unused
		return nil, fmt.Errorf("open log directory: %w", err)
	}
	return &logDir{root: root, dir: dir}, nil
}

func (f *logDir) close() {
	_ = f.dir.Close() // sync returned any write error
	_ = f.root.Close()
}

// list lists the rotated files of a log, the oldest first, and the unused ones to remove. It
// must not be called twice, because it reads f.dir to its end.
func (f *logDir) list(base string) (pieces []rotatedFile, unused []string, err error) {
	entries, err := f.dir.ReadDir(-1)
	if err != nil {
		return nil, nil, fmt.Errorf("list rotated logs: %w", err)
	}
	var files []string
	for _, e := range entries {
		if e.Type().IsRegular() {
			files = append(files, e.Name())
		}
	}
	pieces, unused = classify(base, files)
	return pieces, unused, nil
}

// rename renames a file. It returns fs.ErrExist if a file of the new name exists, because
// the runtime may be writing lines to that. On a file system without RENAME_NOREPLACE the
// check and the renaming are not atomic.
func (f *logDir) rename(from, to string) error {
	fd := int(f.dir.Fd())
	err := unix.Renameat2(fd, from, fd, to, unix.RENAME_NOREPLACE)
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOSYS) {
		// The file system does not support RENAME_NOREPLACE.
		if _, err := f.root.Lstat(to); !errors.Is(err, fs.ErrNotExist) {
			return &os.LinkError{Op: "rename", Old: from, New: to, Err: fs.ErrExist}
		}
		return f.root.Rename(from, to)
	}
	if err != nil {
		return &os.LinkError{Op: "rename", Old: from, New: to, Err: err}
	}
	return nil
}

// size returns the size of a file in bytes, or 0 if it is unknown.
func (f *logDir) size(name string) int64 {
	info, err := f.root.Lstat(name)
	if err != nil {
		return 0
	}
	return info.Size()
}

func (f *logDir) remove(name string) error {
	if err := f.root.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove rotated log: %w", err)
	}
	return nil
}

func (f *logDir) sync() error {
	if err := f.dir.Sync(); err != nil {
		return fmt.Errorf("sync log directory: %w", err)
	}
	return nil
}

// open opens a regular file for reading. It returns errNotRegular for a link.
func (f *logDir) open(name string) (*os.File, fs.FileInfo, error) {
	before, err := f.root.Lstat(name)
	if err != nil {
		return nil, nil, err
	}
	if !before.Mode().IsRegular() {
		return nil, nil, errNotRegular
	}
	in, err := f.root.OpenFile(name, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, nil, err
	}
	info, err := in.Stat()
	if err == nil && !os.SameFile(before, info) {
		err = errNotRegular
	}
	if err != nil {
		_ = in.Close() // unused
		return nil, nil, err
	}
	return in, info, nil
}
