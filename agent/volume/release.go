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

// DropMessage deletes a file that TerminationMessage made, by the path that
// it answered. Other paths and files that are gone are left alone: a
// container of another agent may name any file.
func (v *Volumes) DropMessage(uid types.UID, path string) error {
	own := filepath.Join(v.root, dirPods, string(uid), dirContainers)
	rel, err := filepath.Rel(own, path)
	if err != nil || component(string(uid)) != nil || !filepath.IsLocal(rel) {
		return nil
	}
	dir, err := os.OpenRoot(own)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("drop termination message: %w", err)
	}
	defer dir.Close()
	if err := dir.Remove(rel); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("drop termination message: %w", err)
	}
	return nil
}
