package volume

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/types"
)

// Teardown unmounts all that is mounted in the pod's directory and deletes
// it. It is idempotent and needs no Setup before it. hostPath volumes are
// not touched. It deletes what it can before it fails; the caller tries
// again. It stops when ctx ends.
func (v *Volumes) Teardown(ctx context.Context, uid types.UID) error {
	if err := v.teardown(ctx, string(uid)); err != nil {
		return fmt.Errorf("tear down directory of pod %q: %w", uid, v.advise(err))
	}
	return nil
}

func (v *Volumes) teardown(ctx context.Context, uid string) error {
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
	return errors.Join(unmounted, removeTree(ctx, pods, uid))
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
			err := v.unmount(m.path, unix.UMOUNT_NOFOLLOW)
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
