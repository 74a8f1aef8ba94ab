package volume

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/types"
)

// Teardown unmounts all that is mounted in the pod's directory and deletes
// it. It is idempotent and needs no Setup before it. hostPath volumes are
// not touched. It deletes what it can before it fails; the caller tries
// again. It stops when ctx ends.
func (v *Volumes) Teardown(ctx context.Context, uid types.UID) error {
	err := v.takeDown(ctx, string(uid), func(pods *os.File) error {
		return removeTree(ctx, pods, string(uid))
	})
	if err != nil {
		return fmt.Errorf("tear down directory of pod %q: %w", uid, v.advise(err))
	}
	return nil
}

// Release unmounts and deletes the volumes and subPath mounts of a pod that has ended, and keeps
// its termination messages until Teardown. It makes the promises of Teardown.
func (v *Volumes) Release(ctx context.Context, uid types.UID) error {
	err := v.takeDown(ctx, string(uid), func(pods *os.File) error {
		fd, err := unix.Openat(int(pods.Fd()), string(uid), unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		dir := os.NewFile(uintptr(fd), string(uid))
		defer dir.Close()
		return errors.Join(removeTree(ctx, dir, dirSubPaths), removeTree(ctx, dir, dirVolumes))
	})
	if err != nil {
		return fmt.Errorf("release volumes of pod %q: %w", uid, v.advise(err))
	}
	return nil
}

// takeDown unmounts all in the pod's directory and has remove delete, given
// the directory of all pods.
func (v *Volumes) takeDown(ctx context.Context, uid string, remove func(pods *os.File) error) error {
	if err := component(uid); err != nil {
		return err
	}
	// The mount table has no symbolic links in its paths.
	dir, err := filepath.EvalSymlinks(filepath.Join(v.root, dirPods))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	pods, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer pods.Close()
	unmounted := v.unmountBelow(ctx, filepath.Join(dir, uid))
	return errors.Join(unmounted, remove(pods))
}

// unmountBelow takes down the last mounted first, and looks again, since one
// mount may hide another.
func (v *Volumes) unmountBelow(ctx context.Context, dir string) error {
	for {
		mounts, err := v.mountsBelow(dir)
		if err != nil {
			return err
		}
		if len(mounts) == 0 {
			return nil
		}
		var errs []error
		for _, m := range slices.Backward(mounts) {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			err := v.takeOff(m)
			switch {
			case err == nil, errors.Is(err, unix.EINVAL), errors.Is(err, unix.ENOENT): // gone meanwhile
			case errors.Is(err, unix.EBUSY):
				errs = append(errs, fmt.Errorf("unmount %s: %w: a process still uses it", m.path, err))
			default:
				errs = append(errs, fmt.Errorf("unmount %s: %w", m.path, err))
			}
		}
		if len(errs) > 0 {
			return errors.Join(errs...)
		}
		after, err := v.mountsBelow(dir)
		if err != nil {
			return err
		}
		if len(after) >= len(mounts) {
			return fmt.Errorf("unmount %s: it is still mounted", after[0].path)
		}
	}
}

// takeOff unmounts one mount. One that shows only what has a home elsewhere
// goes from the tree at once, and for good when its last user ends. One that
// holds data, in memory, stays while it is used: its memory is not free until
// then, and the caller is to know.
func (v *Volumes) takeOff(m mountPoint) error {
	err := v.unmount(m.path, unix.UMOUNT_NOFOLLOW)
	holdsData := m.fstype == "tmpfs" || m.fstype == "hugetlbfs"
	if errors.Is(err, unix.EBUSY) && (!holdsData || strings.Contains(m.path, "/"+dirSubPaths+"/")) {
		return v.unmount(m.path, unix.UMOUNT_NOFOLLOW|unix.MNT_DETACH)
	}
	return err
}

// unmountLazily takes a bind mount off a path.
func (v *Volumes) unmountLazily(path string) error {
	err := v.unmount(path, unix.UMOUNT_NOFOLLOW)
	if errors.Is(err, unix.EBUSY) {
		err = v.unmount(path, unix.UMOUNT_NOFOLLOW|unix.MNT_DETACH)
	}
	if err != nil {
		return fmt.Errorf("unmount %s: %w", path, err)
	}
	return nil
}
