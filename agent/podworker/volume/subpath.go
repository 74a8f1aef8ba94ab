package volume

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
)

// errEscape means that a subPath leads out of its volume.
var errEscape = errors.New("path escapes the volume")

// SubPath resolves subPath in the volume at volumePath, creates missing
// directories, and bind-mounts the result at a path in the pod's directory, which
// it returns. Another container cannot replace that mount before the container is
// started. index is the mount's position in the container's volumeMounts, as in
// the kubelet's layout. Symbolic links are followed if they stay in the volume.
// SubPath may be called again: if the subPath is another file then, it replaces the
// mount. Release and Teardown remove the mount.
func (v *Manager) SubPath(ctx context.Context, p *v1.Pod, volumeName, volumePath, subPath string, index int, container string, readOnly bool) (place string, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("prepare subPath %q for volumeMount %q of container %q: %w", subPath, volumeName, container, v.withRemedy(err))
		}
	}()
	uid := string(p.UID)
	if err := errors.Join(checkComponent(uid), checkComponent(volumeName), checkComponent(container), checkSubPath(subPath)); err != nil {
		return "", err
	}
	if index < 0 {
		return "", fmt.Errorf("negative index %d", index)
	}
	root, err := unix.Open(volumePath, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return "", fmt.Errorf("open volume: %w", err)
	}
	defer unix.Close(root)
	found, err := findOrMake(ctx, root, volumePath, subPath)
	if err != nil {
		return "", err
	}
	defer unix.Close(found)
	rel := filepath.Join(uid, dirSubPaths, volumeName, container, strconv.Itoa(index))
	if err := v.bindSubPath(found, rel, readOnly); err != nil {
		return "", err
	}
	return filepath.Join(v.root, dirPods, rel), nil
}

// checkSubPath returns an error for a subPath that is not valid: empty, absolute,
// with a ".." component, with a NUL byte or too long.
func checkSubPath(path string) error {
	switch {
	case path == "":
		return errors.New("must not be empty")
	case strings.HasPrefix(path, "/"):
		return errors.New("must not be an absolute path")
	case slices.Contains(strings.Split(path, "/"), ".."):
		return errors.New("must not contain '..'")
	case strings.IndexByte(path, 0) >= 0 || len(path) >= unix.PathMax:
		return errors.New("contains a NUL byte or is too long")
	}
	return nil
}

const beneath = unix.RESOLVE_BENEATH | unix.RESOLVE_NO_MAGICLINKS

// findOrMake opens the subPath by its inode (O_PATH), and creates missing
// directories.
func findOrMake(ctx context.Context, root int, volumePath, subPath string) (int, error) {
	subPath = filepath.Clean(subPath)
	fd, err := find(root, volumePath, subPath)
	if !errors.Is(err, unix.ENOENT) {
		return fd, err
	}
	return makeBelow(ctx, root, subPath)
}

// find opens a subPath with O_PATH. It follows symbolic links that stay in the volume.
func find(root int, volumePath, subPath string) (int, error) {
	fd, err := openat2(root, subPath, unix.O_PATH|unix.O_CLOEXEC, beneath)
	if !errors.Is(err, unix.EXDEV) {
		return fd, err
	}
	// An absolute link may still lead into the volume, such as one that the
	// operator created in a hostPath. Resolve it here, then open the result
	// without following links.
	whole, err := filepath.EvalSymlinks(volumePath)
	if err != nil {
		return -1, errEscape
	}
	real, err := filepath.EvalSymlinks(filepath.Join(whole, subPath))
	if err != nil {
		return -1, errEscape // or a dangling link: nothing is created through it
	}
	rel, err := filepath.Rel(whole, real)
	if err != nil || !filepath.IsLocal(rel) {
		return -1, errEscape
	}
	fd, err = openat2(root, rel, unix.O_PATH|unix.O_CLOEXEC, beneath|unix.RESOLVE_NO_SYMLINKS)
	if errorIsAny(err, unix.EXDEV, unix.ELOOP) {
		return -1, errEscape // swapped since it was resolved
	}
	return fd, err
}

// makeBelow creates the missing directories of a subPath, with the mode of the volume's
// root, and opens the last component.
func makeBelow(ctx context.Context, root int, subPath string) (int, error) {
	var st unix.Stat_t
	if err := unix.Fstat(root, &st); err != nil {
		return -1, err
	}
	dir, err := unix.FcntlInt(uintptr(root), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	names := strings.Split(subPath, "/")
	for i, name := range names {
		if ctx.Err() != nil {
			_ = unix.Close(dir)
			return -1, context.Cause(ctx)
		}
		// The path from the root, so that links may lead up within the volume.
		next, err := openat2(root, filepath.Join(names[:i+1]...), unix.O_PATH|unix.O_CLOEXEC, beneath)
		if errors.Is(err, unix.ENOENT) {
			next, err = makeIn(dir, name, st.Mode&0o7777)
		}
		_ = unix.Close(dir)
		switch {
		case errorIsAny(err, unix.EXDEV):
			return -1, errEscape
		case err != nil:
			return -1, err
		}
		dir = next
	}
	return dir, nil
}

// makeIn creates one directory in an open one and opens it. A dangling symbolic
// link of the name is an error.
func makeIn(dir int, name string, mode uint32) (int, error) {
	err := unix.Mkdirat(dir, name, 0o700)
	made := err == nil
	if err != nil && !errors.Is(err, unix.EEXIST) {
		return -1, fmt.Errorf("create directory: %w", err)
	}
	fd, err := openat2(dir, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, beneath|unix.RESOLVE_NO_SYMLINKS)
	if errors.Is(err, unix.ELOOP) {
		return -1, errors.New("dangling symbolic link in the path")
	}
	if err != nil {
		return -1, err
	}
	if made {
		if err := unix.Fchmod(fd, mode); err != nil {
			_ = unix.Close(fd)
			return -1, err
		}
	}
	return fd, nil
}
