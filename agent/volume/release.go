package volume

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/types"
)

// Release unmounts and deletes the volumes of a pod that has ended, and keeps
// its termination messages until Teardown. It makes the promises of Teardown.
func (v *Volumes) Release(ctx context.Context, uid types.UID) error {
	if err := v.release(ctx, string(uid)); err != nil {
		return fmt.Errorf("release volumes of pod %q: %w", uid, v.advise(err))
	}
	return nil
}

func (v *Volumes) release(ctx context.Context, uid string) error {
	if err := component(uid); err != nil {
		return err
	}
	// The mount table has no symbolic links in its paths.
	pods, err := filepath.EvalSymlinks(filepath.Join(v.root, dirPods))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	dir, err := os.OpenFile(filepath.Join(pods, uid), unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer dir.Close()
	unmounted := v.unmountBelow(ctx, filepath.Join(pods, uid))
	return errors.Join(unmounted, removeTree(ctx, dir, dirVolumes))
}
