package volume

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// bindSubPath bind-mounts an open file at a path relative to the parent of all pods'
// directories. It replaces a mount of another file, and a read-only one unless readOnly is
// set.
func (v *Manager) bindSubPath(found int, rel string, readOnly bool) error {
	pods, err := v.pods()
	if err != nil {
		return err
	}
	defer pods.Close()
	if err := pods.MkdirAll(filepath.Dir(rel), privateDirMode); err != nil {
		return err
	}
	place := filepath.Join(v.root, dirPods, rel)
	var flags uintptr
	if readOnly {
		flags = unix.MS_RDONLY
	}
	var want, have unix.Stat_t
	if err := unix.Fstat(found, &want); err != nil {
		return err
	}
	for {
		mounted, err := v.mounted(place)
		if err != nil {
			return err
		}
		if !mounted {
			break
		}
		if err := unix.Lstat(place, &have); err != nil {
			return err
		}
		if have.Dev == want.Dev && have.Ino == want.Ino && (readOnly || !isReadOnly(place)) {
			return v.addMountFlags(place, flags)
		}
		if err := v.unmountOrDetach(place); err != nil {
			return fmt.Errorf("unmount %s: %w", place, err)
		}
	}
	if err := makeMountPoint(rel, pods, want.Mode&unix.S_IFMT == unix.S_IFDIR); err != nil {
		return err
	}
	return v.bindFD(found, place, flags)
}

// makeMountPoint creates a mount point for a directory or a file.
func makeMountPoint(rel string, pods *os.Root, dir bool) error {
	info, err := pods.Lstat(rel)
	if err == nil && info.IsDir() != dir {
		// An empty mount point of another file type.
		if err := pods.Remove(rel); err != nil {
			return err
		}
		err = fs.ErrNotExist
	}
	switch {
	case err == nil:
		return nil
	case !errors.Is(err, fs.ErrNotExist):
		return err
	case dir:
		return pods.Mkdir(rel, privateDirMode)
	}
	f, err := pods.OpenFile(rel, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o640)
	if err != nil {
		return err
	}
	return f.Close()
}
