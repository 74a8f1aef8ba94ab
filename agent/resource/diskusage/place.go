package diskusage

import (
	"errors"
	"io/fs"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// Place is a directory or file. Root belongs to the operator, and symbolic links in
// it are followed. Path is relative to Root, and no symbolic link in it is followed.
type Place struct {
	Root, Path string
}

// open opens the place with O_PATH.
func (p Place) open() (int, error) {
	path, err := unix.ByteSliceFromString(p.Path)
	if err != nil {
		return -1, p.pathError(err)
	}
	root, err := unix.Open(p.Root, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, p.pathError(err)
	}
	defer unix.Close(root)
	// Mounts on the way, below the root, belong to the operator too.
	fd, err := openat2(root, &path[0], unix.O_PATH|unix.O_NOFOLLOW, beneath&^unix.RESOLVE_NO_XDEV)
	if err != nil {
		return -1, p.pathError(err)
	}
	return fd, nil
}

func (p Place) pathError(err error) error {
	return &fs.PathError{Op: "measure", Path: filepath.Join(p.Root, p.Path), Err: err}
}

// Measure continues the walk of a place, as Step does. If the place is a file,
// Measure counts only that. It returns an error if the place cannot be opened, one
// that wraps fs.ErrNotExist if it does not exist; then nothing was counted.
func (k *Walker) Measure(w *Walk, p Place, entries int, stop func() bool) (took int, done bool, err error) {
	fd, err := p.open()
	if err != nil {
		return 0, true, err
	}
	defer unix.Close(fd)
	if err := statx(fd, &emptyName[0], &k.st); err != nil {
		return 0, true, p.pathError(err)
	}
	switch k.st.Mode & unix.S_IFMT {
	case unix.S_IFDIR:
		took, done = k.Step(w, fd, entries, stop)
		return took, done, nil
	case unix.S_IFLNK:
		return 0, true, p.pathError(errLink)
	}
	if !w.done {
		w.begun, w.done = true, true
		w.entries++
		w.count(&k.st)
	}
	return 1, true, nil
}

var errLink = errors.New("symbolic link is not followed")
