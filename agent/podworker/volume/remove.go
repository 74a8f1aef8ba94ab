package volume

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

const (
	// maxDepth is the maximum number of directories that are open at once.
	// Deeper directories are moved up first, because a container can nest
	// directories without limit.
	maxDepth = 32
	// batch is the maximum number of names in memory for each open directory.
	// A directory can have millions of names, of up to 255 bytes each.
	batch = 64
)

// errMounted means that a directory is a mount point.
var errMounted = errors.New("is a mount point")

// removeTree deletes name in parent and everything below it. It follows no
// symbolic link and does not enter mounts: it opens each directory with
// openat2(2), which rejects both (Linux 5.6). It continues after an error and
// returns the first one. It stops when ctx ends.
func removeTree(ctx context.Context, parent *os.File, name string) error {
	r := &remover{top: -1}
	r.remove(ctx, int(parent.Fd()), name, 0)
	return r.err
}

// remover is the state of one removeTree.
type remover struct {
	top   int // the top directory of the tree, while it is open
	moved int // number of the last directory that moveUp named
	err   error
}

func (r *remover) fail(name string, err error) {
	if r.err == nil {
		r.err = fmt.Errorf("delete %q: %w", name, err)
	}
}

// remove deletes a name in the directory dir, and reports whether it is gone.
func (r *remover) remove(ctx context.Context, dir int, name string, depth int) bool {
	err := unix.Unlinkat(dir, name, 0)
	switch {
	case err == nil, errors.Is(err, unix.ENOENT):
		return true
	case !errors.Is(err, unix.EISDIR):
		r.fail(name, err)
		return false
	}
	if depth >= maxDepth {
		return r.moveUp(dir, name)
	}
	if !r.empty(ctx, dir, name, depth) {
		return false
	}
	err = unix.Unlinkat(dir, name, unix.AT_REMOVEDIR)
	if err != nil && !errors.Is(err, unix.ENOENT) {
		r.fail(name, err)
		return false
	}
	return true
}

// moveUp moves a deep directory into the top one, which is read again until it is empty.
func (r *remover) moveUp(dir int, name string) bool {
	for {
		r.moved++
		err := unix.Renameat(dir, name, r.top, fmt.Sprintf(".deep-%d", r.moved))
		switch {
		case err == nil:
			return true
		case errors.Is(err, unix.EEXIST), errors.Is(err, unix.ENOTEMPTY), errors.Is(err, unix.ENOTDIR):
			continue // the name is taken
		default:
			r.fail(name, fmt.Errorf("move up: %w", err))
			return false
		}
	}
}

// empty deletes the content of a directory, and reports whether it is empty.
func (r *remover) empty(ctx context.Context, dir int, name string, depth int) bool {
	fd, err := openBeneath(dir, name)
	if errors.Is(err, unix.ENOENT) {
		return true
	}
	if err != nil {
		r.fail(name, err)
		return false
	}
	if depth == 0 {
		r.top = fd
	}
	f := os.NewFile(uintptr(fd), name)
	defer f.Close()
	for {
		left, gone, err := r.pass(ctx, f, depth)
		switch {
		case err != nil:
			r.fail(name, err)
			return false
		case left == 0 && gone == 0:
			return true
		case gone == 0:
			return false
		}
		// Deletion may have caused names to be skipped: read from the start
		// again.
		if _, err := f.Seek(0, io.SeekStart); err != nil {
			r.fail(name, err)
			return false
		}
	}
}

// pass reads a directory once and deletes its entries. It returns the numbers of entries
// that are left and gone. It returns the cause of ctx when ctx ends.
func (r *remover) pass(ctx context.Context, f *os.File, depth int) (left, gone int, err error) {
	for {
		if ctx.Err() != nil {
			return left, gone, context.Cause(ctx)
		}
		names, err := f.Readdirnames(batch)
		for _, name := range names {
			if r.remove(ctx, int(f.Fd()), name, depth+1) {
				gone++
			} else {
				left++
			}
		}
		if errors.Is(err, io.EOF) {
			return left, gone, nil
		}
		if err != nil {
			return left, gone, err
		}
	}
}

// openBeneath opens a directory in dir, unless it is a symbolic link or a mount
// point.
func openBeneath(dir int, name string) (int, error) {
	return openat2(dir, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC,
		unix.RESOLVE_BENEATH|unix.RESOLVE_NO_XDEV|unix.RESOLVE_NO_SYMLINKS|unix.RESOLVE_NO_MAGICLINKS)
}

// maxRaces is the maximum number of retries of an open that a rename disturbed.
const maxRaces = 1000

// openat2 opens a path in a directory. resolve are the RESOLVE_ flags that
// restrict the path (openat2(2)). If the path violates them, the error is
// errMounted for a mount point (with RESOLVE_NO_XDEV), else EXDEV or ELOOP.
func openat2(dir int, name string, flags, resolve uint64) (int, error) {
	how := &unix.OpenHow{Flags: flags, Resolve: resolve}
	for races := 0; ; {
		fd, err := unix.Openat2(dir, name, how)
		switch {
		case err == nil:
			return fd, nil
		case errors.Is(err, unix.EINTR):
			continue
		case errors.Is(err, unix.EAGAIN) && races < maxRaces:
			races++
			continue
		case errors.Is(err, unix.EXDEV) && resolve&unix.RESOLVE_NO_XDEV != 0:
			return -1, &fs.PathError{Op: "openat2", Path: name, Err: errMounted}
		case errors.Is(err, unix.ENOSYS):
			return -1, fmt.Errorf("openat2 needs Linux 5.6: %w", err)
		default:
			return -1, err
		}
	}
}
