package cgroups

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// Files of a cgroup, from cgroup-v2.rst.
const (
	fileControllers  = "cgroup.controllers"
	fileSubtree      = "cgroup.subtree_control"
	fileEvents       = "cgroup.events"
	fileProcs        = "cgroup.procs"
	fileKill         = "cgroup.kill"
	fileCPUs         = "cpuset.cpus"
	fileCPUWeight    = "cpu.weight"
	fileCPUMax       = "cpu.max"
	fileMemoryMax    = "memory.max"
	fileMemory       = "memory.current"
	fileMemoryMin    = "memory.min"
	fileMemoryStat   = "memory.stat"
	fileMemoryEvents = "memory.events"
	fileLocalEvents  = "memory.events.local"
	filePidsEvents   = "pids.events"
	filePidsMax      = "pids.max"
)

// read is the function read for a file of the cgroup at path. It returns the file's name.
func (t *Tree) read(path, file string, buf []byte) (name string, n int, err error) {
	dir, err := t.dir(path)
	if err != nil {
		return "", 0, err
	}
	name = dir + "/" + file
	n, err = read(name, buf)
	return name, n, err
}

// read fills buf from the start of a file of a cgroup. The library has no function that
// reads one file, and its stats have 0 for a file that cannot be read: here a missing
// cgroup is ErrNotFound and a missing controller ErrController. It allocates nothing but
// errors.
func read(file string, buf []byte) (int, error) {
	fd, err := retry(func() (int, error) { return unix.Open(file, unix.O_RDONLY|unix.O_CLOEXEC, 0) })
	switch {
	case errors.Is(err, unix.ENOENT):
		return 0, fmt.Errorf("read %s: %w", file, whyMissing(file))
	case errors.Is(err, unix.ENODEV): // the cgroup is being deleted
		return 0, fmt.Errorf("read %s: %w", file, ErrNotFound)
	case err != nil:
		return 0, fmt.Errorf("read %s: %w", file, err)
	}
	defer unix.Close(fd)
	n := 0
	for n < len(buf) {
		m, err := retry(func() (int, error) { return unix.Read(fd, buf[n:]) })
		if errors.Is(err, unix.ENODEV) { // deleted since it was opened
			return 0, fmt.Errorf("read %s: %w", file, ErrNotFound)
		}
		if err != nil {
			return 0, fmt.Errorf("read %s: %w", file, err)
		}
		if m == 0 {
			break
		}
		n += m
	}
	return n, nil
}

// write writes one value to an existing file. It is for files by name
// (Resources.Unified): the library writes only those that it has a field for.
func write(file, value string) error {
	f, err := os.OpenFile(file, os.O_WRONLY|os.O_TRUNC, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(value)
	return errors.Join(err, f.Close())
}

// writeError returns why a file of the cgroup at dir could not be written: ErrNotFound
// if the cgroup does not exist, ErrController if it has no such file, else err. The
// library opens files with O_CREAT, for which cgroupfs returns EACCES where a file is
// missing.
func writeError(dir string, err error) error {
	var at *fs.PathError
	switch {
	case errors.Is(err, unix.ENODEV), !isDir(dir): // ENODEV: deleted between open and write
		return ErrNotFound
	case errors.As(err, &at) && isMissing(at.Path):
		return ErrController
	default:
		return err
	}
}

// whyMissing returns ErrController if the cgroup of a missing file exists, else
// ErrNotFound.
func whyMissing(file string) error {
	if isDir(filepath.Dir(file)) {
		return ErrController
	}
	return ErrNotFound
}

func isMissing(file string) bool {
	_, err := os.Lstat(file)
	return errors.Is(err, fs.ErrNotExist)
}

func isDir(path string) bool {
	info, err := os.Lstat(path)
	return err == nil && info.IsDir()
}

func retry(call func() (int, error)) (int, error) {
	for {
		n, err := call()
		if !errors.Is(err, unix.EINTR) {
			return n, err
		}
	}
}
