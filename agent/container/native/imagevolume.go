package native

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	crierrors "k8s.io/cri-api/pkg/errors"

	"github.com/tinylet/tinylet/agent/container"
	"github.com/tinylet/tinylet/agent/container/native/store"
)

// imageVolumesDir is the directory of the images that a container has as volumes.
func (d *Driver) imageVolumesDir(id string) string {
	return filepath.Join(d.containerDir(id), "images")
}

// volumeKey is the key of the snapshot of a mount. It begins with the ID of the container.
func volumeKey(id string, index int) string { return id + "-" + strconv.Itoa(index) }

// imageVolumes mounts the images that a container has as volumes (KEP-4639). It returns the
// directories by the index of their mounts.
func (d *Driver) imageVolumes(ctx context.Context, id string, mounts []*runtimeapi.Mount) (map[int]string, error) {
	out := map[int]string{}
	for i, m := range mounts {
		if m.GetImage() == nil {
			continue
		}
		dir, err := d.imageVolume(ctx, id, i, m)
		if err != nil {
			return nil, fmt.Errorf("%w: %q: %w", crierrors.ErrImageVolumeMountFailed, m.GetContainerPath(), err)
		}
		out[i] = dir
	}
	return out, nil
}

func (d *Driver) imageVolume(ctx context.Context, id string, index int, m *runtimeapi.Mount) (string, error) {
	image, err := d.Store.Image(ctx, m.GetImage().GetImage())
	if err != nil {
		return "", err
	}
	if image == nil {
		return "", fmt.Errorf("image %q: %w", m.GetImage().GetImage(), container.ErrNotFound)
	}
	// The directory is there before the snapshot, so that removeImages finds it.
	dir := filepath.Join(d.imageVolumesDir(id), strconv.Itoa(index))
	if err := os.MkdirAll(dir, 0o711); err != nil {
		return "", err
	}
	mounts, err := d.Store.PrepareImage(ctx, volumeKey(id, index), image)
	if err != nil {
		return "", err
	}
	if err := store.MountRoot(mounts, dir); err != nil {
		return "", err
	}
	if m.GetImageSubPath() == "" {
		return dir, nil
	}
	// Links in the image must not lead out of it.
	f, err := os.OpenInRoot(dir, m.GetImageSubPath())
	if err != nil {
		return "", err
	}
	path, err := os.Readlink(filepath.Join("/proc/self/fd", strconv.Itoa(int(f.Fd()))))
	info, statErr := f.Stat()
	if err = errors.Join(err, statErr, f.Close()); err != nil {
		return "", err
	}
	if !info.IsDir() {
		return "", fmt.Errorf("%q is no directory", m.GetImageSubPath())
	}
	return path, nil
}

// unmountImages unmounts the image volumes of a container.
func (d *Driver) unmountImages(id string) error {
	all, err := os.ReadDir(d.imageVolumesDir(id))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	for _, e := range all {
		err = errors.Join(err, store.UnmountRoot(filepath.Join(d.imageVolumesDir(id), e.Name())))
	}
	return err
}

// removeImages removes the image volumes of a container with their snapshots.
func (d *Driver) removeImages(ctx context.Context, id string) error {
	if err := d.unmountImages(id); err != nil {
		return err
	}
	all, err := os.ReadDir(d.imageVolumesDir(id))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	for _, e := range all {
		err = errors.Join(err, d.Store.RemoveSnapshot(ctx, id+"-"+e.Name()))
	}
	return err
}
