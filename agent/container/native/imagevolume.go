package native

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	crierrors "k8s.io/cri-api/pkg/errors"

	"github.com/tinylet/tinylet/agent/container"
	"github.com/tinylet/tinylet/agent/container/native/store"
)

// imageVolumesDir is the directory of the images that a container has as volumes.
func (d *Driver) imageVolumesDir(id string) string {
	return filepath.Join(d.containerDir(id), "images")
}

// volumeKey is the key of the snapshot of an image volume: the ID of the container, and the
// name of the volume's directory.
func volumeKey(id, name string) string { return id + "-" + name }

// ownsSnapshot reports whether a container has a snapshot.
func (d *Driver) ownsSnapshot(key string) bool {
	id, volume, isVolume := strings.Cut(key, "-")
	if d.containers[id] == nil || !isVolume {
		return d.containers[id] != nil
	}
	return exists(filepath.Join(d.imageVolumesDir(id), volume)) // not after a boot
}

// imageVolumes mounts the images that a container has as volumes (KEP-4639). It returns the
// directories by the index of their mounts.
func (d *Driver) imageVolumes(ctx context.Context, id string, mounts []*runtimeapi.Mount, ids store.IDMap) (map[int]string, error) {
	out := map[int]string{}
	for i, m := range mounts {
		if m.GetImage() == nil {
			continue
		}
		dir, err := d.imageVolume(ctx, id, i, m, ids)
		if err != nil {
			return nil, fmt.Errorf("%w: %q: %w", crierrors.ErrImageVolumeMountFailed, m.GetContainerPath(), err)
		}
		out[i] = dir
	}
	return out, nil
}

func (d *Driver) imageVolume(ctx context.Context, id string, index int, m *runtimeapi.Mount, ids store.IDMap) (string, error) {
	image, err := d.Store.Image(ctx, m.GetImage().GetImage())
	if err != nil {
		return "", err
	}
	if image == nil {
		return "", fmt.Errorf("image %q: %w", m.GetImage().GetImage(), container.ErrNotFound)
	}
	// The directory is there before the snapshot, so that removeImages finds it.
	name := strconv.Itoa(index)
	dir := filepath.Join(d.imageVolumesDir(id), name)
	if err := os.MkdirAll(dir, 0o711); err != nil {
		return "", err
	}
	mounts, err := d.Store.ViewImage(ctx, volumeKey(id, name), image, ids)
	if err != nil {
		return "", err
	}
	if err := store.MountRoot(mounts, dir); err != nil {
		return "", err
	}
	if m.GetImageSubPath() == "" {
		return dir, nil
	}
	return dirBelow(dir, m.GetImageSubPath())
}

// dirBelow returns the path of a directory below another one. Links do not lead out of that.
func dirBelow(dir, name string) (path string, err error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, root.Close()) }()
	below, err := root.OpenRoot(name) // does not open a file or a FIFO
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, below.Close()) }()
	f, err := below.Open(".")
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	return os.Readlink("/proc/self/fd/" + strconv.Itoa(int(f.Fd())))
}

// unmount unmounts the root file system and the image volumes of a container.
func (d *Driver) unmount(id string) error {
	err := store.UnmountRoot(d.root(id))
	names, readErr := d.imageVolumeNames(id)
	err = errors.Join(err, readErr)
	for _, name := range names {
		err = errors.Join(err, store.UnmountRoot(filepath.Join(d.imageVolumesDir(id), name)))
	}
	return err
}

// imageVolumeNames returns the names of the directories of a container's image volumes.
func (d *Driver) imageVolumeNames(id string) ([]string, error) {
	all, err := os.ReadDir(d.imageVolumesDir(id))
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	names := make([]string, 0, len(all))
	for _, e := range all {
		names = append(names, e.Name())
	}
	return names, err
}

// removeImages removes the snapshots of a container's image volumes.
func (d *Driver) removeImages(ctx context.Context, id string) error {
	names, err := d.imageVolumeNames(id)
	for _, name := range names {
		err = errors.Join(err, d.Store.RemoveSnapshot(ctx, volumeKey(id, name)))
	}
	return err
}
