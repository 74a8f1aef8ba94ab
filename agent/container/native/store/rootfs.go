package store

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	introspection "github.com/containerd/containerd/api/services/introspection/v1"
	"github.com/containerd/containerd/v2/core/mount"
	"github.com/containerd/containerd/v2/core/snapshots"
	"github.com/containerd/errdefs"
	"github.com/containerd/platforms"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/tinylet/tinylet/agent/container"
)

// labelRoot keeps a snapshot until it is removed by its name.
const labelRoot = "containerd.io/gc.root"

// IDMap maps the owners of the files of a snapshot for a user namespace: one range of users and
// one of groups, as containerd's labels have room for. The zero value does not.
type IDMap struct{ UIDs, GIDs specs.LinuxIDMapping }

func label(m specs.LinuxIDMapping) string {
	return fmt.Sprintf("%d:%d:%d", m.ContainerID, m.HostID, m.Size)
}

// CheckIDMaps returns container.ErrUnsupported if the snapshotter cannot map owners.
func (s *Store) CheckIDMaps(ctx context.Context) error {
	plugins, err := s.snapshotterPlugin(ctx)
	if err != nil {
		return err
	}
	for _, p := range plugins.GetPlugins() {
		if slices.Contains(p.GetCapabilities(), "remap-ids") {
			return nil
		}
	}
	return fmt.Errorf("snapshotter %s of containerd cannot map the owners of files, which needs containerd 2.0 and Linux 5.19: %w", s.snapshotter, container.ErrUnsupported)
}

func (s *Store) snapshotterPlugin(ctx context.Context) (*introspection.PluginsResponse, error) {
	return call(ctx, func(ctx context.Context) (*introspection.PluginsResponse, error) {
		return s.client.IntrospectionService().Plugins(ctx, "type==io.containerd.snapshotter.v1", "id=="+s.snapshotter)
	}, "find snapshotter %s", s.snapshotter)
}

// prepare makes a snapshot of a container on top of the snapshot of an image.
func (s *Store) prepare(ctx context.Context, with func(snapshots.Snapshotter, context.Context, string, string, ...snapshots.Opt) ([]mount.Mount, error), key string, image *Image, m IDMap) ([]mount.Mount, error) {
	if err := s.needUnpacked(ctx, image); err != nil {
		return nil, err
	}
	return call(ctx, func(ctx context.Context) ([]mount.Mount, error) {
		labels := map[string]string{labelKind: kindContainer, labelRoot: "tinylet"}
		if m != (IDMap{}) {
			labels[snapshots.LabelSnapshotUIDMapping], labels[snapshots.LabelSnapshotGIDMapping] = label(m.UIDs), label(m.GIDs)
		}
		return with(s.client.SnapshotService(s.snapshotter), ctx, key, image.ChainID, snapshots.WithLabels(labels))
	}, "prepare snapshot %s", key)
}

// Unpacker unpacks the layers of an image.
type Unpacker interface {
	Unpack(ctx context.Context, target ocispec.Descriptor, platform platforms.MatchComparer, snapshotter string) (chainID string, err error)
}

// PrepareImage makes a snapshot for the root file system of a container with an image, whose
// layers it unpacks if needed.
func (s *Store) PrepareImage(ctx context.Context, key string, image *Image, m IDMap) ([]mount.Mount, error) {
	return s.prepare(ctx, snapshots.Snapshotter.Prepare, key, image, m)
}

// ViewImage makes a read-only snapshot for a container with an image as a volume, whose layers
// it unpacks if needed.
func (s *Store) ViewImage(ctx context.Context, key string, image *Image, m IDMap) ([]mount.Mount, error) {
	return s.prepare(ctx, snapshots.Snapshotter.View, key, image, m)
}

// needUnpacked unpacks the layers of an image unless they are.
func (s *Store) needUnpacked(ctx context.Context, image *Image) error {
	_, err := call(ctx, func(ctx context.Context) (snapshots.Info, error) {
		return s.client.SnapshotService(s.snapshotter).Stat(ctx, image.ChainID)
	}, "find root file system of image %s", image.ID)
	if errors.Is(err, container.ErrNotFound) {
		err = s.unpack(ctx, image)
	}
	return err
}

// unpack unpacks the layers of an image that was imported.
func (s *Store) unpack(ctx context.Context, image *Image) error {
	leased, release, err := s.lease(ctx, image.Target)
	if err != nil {
		return err
	}
	_, err = s.unpacker.Unpack(leased, image.Target, s.platform, s.snapshotter)
	return errors.Join(err, release())
}

// RemoveSnapshot removes a snapshot. It returns nil if there is none.
func (s *Store) RemoveSnapshot(ctx context.Context, key string) error {
	_, err := call(ctx, func(ctx context.Context) (struct{}, error) {
		err := s.client.SnapshotService(s.snapshotter).Remove(ctx, key)
		if errdefs.IsNotFound(err) {
			err = nil
		}
		return struct{}{}, err
	}, "remove root file system %s", key)
	return err
}

// Snapshots returns the keys of the containers' snapshots.
func (s *Store) Snapshots(ctx context.Context) ([]string, error) {
	return call(ctx, func(ctx context.Context) (keys []string, err error) {
		err = s.client.SnapshotService(s.snapshotter).Walk(ctx, func(_ context.Context, info snapshots.Info) error {
			keys = append(keys, info.Name)
			return nil
		}, `labels."`+labelKind+`"==`+kindContainer)
		return keys, err
	}, "list root file systems")
}

// MountRoot mounts a root file system. Its upper directory is not synced: what a container
// writes to its own root file system is lost with it, and a power cut ends it. Kernels before
// 5.10 do not have the option volatile.
func MountRoot(mounts []mount.Mount, target string) error {
	if err := os.MkdirAll(target, 0o711); err != nil {
		return fmt.Errorf("mount root file system: %w", err)
	}
	if len(mounts) == 1 && mounts[0].Type == "bind" {
		if mapped, err := mountMapped(mounts[0], target); mapped || err != nil {
			return err
		}
	}
	unsynced := slices.Clone(mounts)
	for i := range unsynced {
		if unsynced[i].Type == "overlay" {
			unsynced[i].Options = append(slices.Clone(unsynced[i].Options), "volatile")
		}
	}
	err := mount.All(unsynced, target)
	if errors.Is(err, unix.EINVAL) {
		err = mount.All(mounts, target)
	}
	if err != nil {
		return fmt.Errorf("mount root file system at %q: %w", target, err)
	}
	return nil
}

// mountMapped mounts a directory if it has ID mappings: the view of an image with one layer.
// containerd's mount does not map a directory that it mounts read-only, and it mounts others
// twice, one on the other (Mount.mount in core/mount/mount_linux.go).
func mountMapped(m mount.Mount, target string) (mapped bool, err error) {
	var uids, gids string
	var set uint64
	for _, o := range m.Options {
		switch name, value, _ := strings.Cut(o, "="); name {
		case "uidmap":
			uids = value
		case "gidmap":
			gids = value
		case "ro":
			set = unix.MOUNT_ATTR_RDONLY
		}
	}
	if uids == "" || gids == "" {
		return false, nil
	}
	users, err := mount.GetUsernsFD(uids, gids)
	if err != nil {
		return true, fmt.Errorf("mount %q at %q: %w", m.Source, target, err)
	}
	err = mount.IDMapMountWithAttrs(m.Source, target, int(users.Fd()), set, 0)
	if err = errors.Join(err, users.Close()); err != nil {
		return true, fmt.Errorf("mount %q at %q: %w", m.Source, target, err)
	}
	return true, nil
}

// UnmountRoot unmounts a root file system. It returns nil if none is mounted.
func UnmountRoot(target string) error {
	err := unix.Unmount(target, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
	if err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("unmount root file system at %q: %w", target, err)
	}
	return nil
}

// SnapshotUsage returns what a snapshot uses without its parents.
func (s *Store) SnapshotUsage(ctx context.Context, key string) (snapshots.Usage, error) {
	return call(ctx, func(ctx context.Context) (snapshots.Usage, error) {
		return s.client.SnapshotService(s.snapshotter).Usage(ctx, key)
	}, "measure snapshot %s", key)
}

// Usage returns the directory of the snapshotter, and the bytes that all snapshots use.
func (s *Store) Usage(ctx context.Context) (dir string, used int64, err error) {
	plugins, err := s.snapshotterPlugin(ctx)
	if err != nil {
		return "", 0, err
	}
	for _, p := range plugins.GetPlugins() {
		dir = p.GetExports()["root"]
	}
	used, err = call(ctx, func(ctx context.Context) (sum int64, err error) {
		sn := s.client.SnapshotService(s.snapshotter)
		var keys []string
		if err := sn.Walk(ctx, func(_ context.Context, info snapshots.Info) error {
			keys = append(keys, info.Name)
			return nil
		}); err != nil {
			return 0, err
		}
		for _, key := range keys {
			usage, err := sn.Usage(ctx, key)
			if err != nil && !errdefs.IsNotFound(err) {
				return 0, err
			}
			sum += usage.Size
		}
		return sum, nil
	}, "measure snapshots")
	return dir, used, err
}
