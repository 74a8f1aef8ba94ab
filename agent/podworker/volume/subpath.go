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

// errEscape says that a subPath leads elsewhere.
var errEscape = errors.New("it leads out of the volume")

// SubPath finds subPath in a volume that is at volumePath, makes missing
// directories, and binds what it found to a place of its own, which it
// answers: what a container mounts there cannot be swapped by another
// container meanwhile. index is the mount's position in the container's
// volumeMounts, as the kubelet numbers them. Symbolic links count that stay in
// the volume. It is idempotent; where the subPath has become another file, the
// place gets that. Release and Teardown take the place away.
func (v *Volumes) SubPath(ctx context.Context, p *v1.Pod, volumeName, volumePath, subPath string, index int, container string, readOnly bool) (string, error) {
	place, err := v.subPath(ctx, string(p.UID), volumeName, volumePath, subPath, index, container, readOnly)
	if err != nil {
		return "", fmt.Errorf("prepare subPath %q for volumeMount %q of container %q: %w", subPath, volumeName, container, v.advise(err))
	}
	return place, nil
}

func (v *Volumes) subPath(ctx context.Context, uid, volume, volumePath, subPath string, index int, container string, readOnly bool) (string, error) {
	if err := errors.Join(component(uid), component(volume), component(container), checkSubPath(subPath)); err != nil {
		return "", err
	}
	if index < 0 {
		return "", fmt.Errorf("the index %d is negative", index)
	}
	root, err := unix.Open(volumePath, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return "", fmt.Errorf("open the volume: %w", err)
	}
	defer unix.Close(root)
	found, err := findOrMake(ctx, root, volumePath, subPath)
	if err != nil {
		return "", err
	}
	defer unix.Close(found)
	rel := filepath.Join(uid, dirSubPaths, volume, container, strconv.Itoa(index))
	if err := v.bindPlace(found, rel, readOnly); err != nil {
		return "", err
	}
	return filepath.Join(v.root, dirPods, rel), nil
}

// checkSubPath refuses what could only lead out.
func checkSubPath(path string) error {
	switch {
	case path == "":
		return errors.New("it is empty")
	case strings.HasPrefix(path, "/"):
		return errors.New("it must not be an absolute path")
	case slices.Contains(strings.Split(path, "/"), ".."):
		return errors.New("it must not contain '..'")
	case strings.IndexByte(path, 0) >= 0 || len(path) >= unix.PathMax:
		return errors.New("it is not a path")
	}
	return nil
}

const beneath = unix.RESOLVE_BENEATH | unix.RESOLVE_NO_MAGICLINKS

// findOrMake opens the subPath by its inode (O_PATH).
func findOrMake(ctx context.Context, root int, volumePath, subPath string) (int, error) {
	subPath = filepath.Clean(subPath)
	fd, err := find(root, volumePath, subPath)
	if !errors.Is(err, unix.ENOENT) {
		return fd, err
	}
	return makeBelow(ctx, root, subPath)
}

// find follows the links of a subPath that stay in the volume.
func find(root int, volumePath, subPath string) (int, error) {
	fd, err := openat2(root, subPath, unix.O_PATH|unix.O_CLOEXEC, beneath)
	if !errors.Is(err, unix.EXDEV) {
		return fd, err
	}
	// An absolute link may lead into the volume all the same, such as one that
	// the operator made in a hostPath. Where it leads is read here and opened
	// without following anything.
	whole, err := filepath.EvalSymlinks(volumePath)
	if err != nil {
		return -1, errEscape
	}
	real, err := filepath.EvalSymlinks(filepath.Join(whole, subPath))
	if err != nil {
		return -1, errEscape // or it leads to nothing: nothing is made through it
	}
	rel, err := filepath.Rel(whole, real)
	if err != nil || !filepath.IsLocal(rel) {
		return -1, errEscape
	}
	fd, err = openat2(root, rel, unix.O_PATH|unix.O_CLOEXEC, beneath|unix.RESOLVE_NO_SYMLINKS)
	if isAny(err, unix.EXDEV, unix.ELOOP) {
		return -1, errEscape // it was swapped meanwhile
	}
	return fd, err
}

// makeBelow makes the directories of a subPath that are missing, with the mode
// of the volume, and opens the last.
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
		case isAny(err, unix.EXDEV):
			return -1, errEscape
		case err != nil:
			return -1, err
		}
		dir = next
	}
	return dir, nil
}

// makeIn makes one directory in an open one and opens it. A link that leads to
// nothing is in its way.
func makeIn(dir int, name string, mode uint32) (int, error) {
	err := unix.Mkdirat(dir, name, 0o700)
	made := err == nil
	if err != nil && !errors.Is(err, unix.EEXIST) {
		return -1, fmt.Errorf("make the directory: %w", err)
	}
	fd, err := openat2(dir, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, beneath|unix.RESOLVE_NO_SYMLINKS)
	if errors.Is(err, unix.ELOOP) {
		return -1, errors.New("a symbolic link in it leads to nothing")
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
