package spec

import (
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/opencontainers/runtime-spec/specs-go"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	crierrors "k8s.io/cri-api/pkg/errors"
)

// bind is a mount of a host path into the container.
type bind struct {
	source, destination string
	readonly, recursive bool // recursive: read-only with all mounts below
	propagation         runtimeapi.MountPropagation
	uids, gids          []specs.LinuxIDMapping
	options             []string
}

// binds returns the bind mounts, those with fewer path elements first, so that none covers
// another.
func (b *builder) binds() ([]bind, error) {
	var all []bind
	taken := map[string]bool{}
	for i, m := range b.Config.GetMounts() {
		own, err := b.configBind(i, m)
		if err != nil {
			return nil, fmt.Errorf("mounts: %q: %w", m.GetContainerPath(), err)
		}
		all = append(all, own)
		taken[path.Clean(m.GetContainerPath())] = true
	}
	volumes, err := b.volumeBinds(taken)
	if err != nil {
		return nil, err
	}
	for _, extra := range slices.Concat(b.fileBinds(), volumes) {
		if !taken[path.Clean(extra.destination)] {
			all = append(all, extra)
		}
	}
	slices.SortStableFunc(all, func(a, b bind) int { return depth(a.destination) - depth(b.destination) })
	return all, nil
}

func depth(name string) int { return strings.Count(path.Clean(name), "/") }

// bindOptions are the options that a config may add. They only take rights away.
var bindOptions = []string{"noexec", "nodev", "nosuid"}

// configBind returns a mount of the config. A mount of an image has the host path in
// ImageMounts, and no ID mappings, because they are applied to the image's own mount
// (server/container_image_mount.go).
func (b *builder) configBind(index int, m *runtimeapi.Mount) (bind, error) {
	out := bind{
		source: m.GetHostPath(), destination: m.GetContainerPath(),
		readonly: m.GetReadonly(), recursive: m.GetRecursiveReadOnly(), propagation: m.GetPropagation(),
		uids: idMappings(m.GetUidMappings()), gids: idMappings(m.GetGidMappings()),
		options: slices.Clone(m.GetMountOptions()),
	}
	for _, option := range out.options {
		if !slices.Contains(bindOptions, option) {
			return out, fmt.Errorf("mount_options: %q is not supported: use %s", option, strings.Join(bindOptions, ", "))
		}
	}
	if m.GetImage() == nil {
		return out, nil
	}
	source, err := b.imageSource(index, m)
	if err != nil {
		return out, fmt.Errorf("%w: %w", crierrors.ErrImageVolumeMountFailed, err)
	}
	out.source, out.uids, out.gids = source, nil, nil
	return out, nil
}

func (b *builder) imageSource(index int, m *runtimeapi.Mount) (string, error) {
	ref := m.GetImage().GetImage()
	switch source := b.ImageMounts[index]; {
	case m.GetHostPath() != "":
		return "", fmt.Errorf("host_path %q is set beside image: remove one of them", m.GetHostPath())
	case !m.GetReadonly():
		return "", errors.New("image is not mounted read-only: set readonly")
	case ref == "":
		return "", errors.New("image has no reference: set image.image")
	case source == "":
		return "", fmt.Errorf("image %q is not mounted on the host: create the container again", ref)
	default:
		return source, nil
	}
}

// fileBinds returns the mounts of the sandbox's files (linuxContainerMounts in
// server/container_create.go). /dev/shm has no ID mappings, because the kernel maps tmpfs only
// from Linux 6.3 on, and it is writable even if the root filesystem is not.
func (b *builder) fileBinds() []bind {
	options := b.containerOptions()
	uids, gids := idMappings(options.GetUsernsOptions().GetUids()), idMappings(options.GetUsernsOptions().GetGids())
	shm := b.Files.Shm
	if options.GetIpc() == runtimeapi.NamespaceMode_NODE {
		shm = hostShm
	}
	readonly := b.security.GetReadonlyRootfs()
	binds := []bind{
		{destination: "/etc/hostname", source: b.Files.Hostname, readonly: readonly, uids: uids, gids: gids},
		{destination: "/etc/hosts", source: b.Files.Hosts, readonly: readonly, uids: uids, gids: gids},
		{destination: "/etc/resolv.conf", source: b.Files.ResolvConf, readonly: readonly, uids: uids, gids: gids},
		{destination: "/dev/shm", source: shm},
	}
	return slices.DeleteFunc(binds, func(m bind) bool { return m.source == "" })
}

// volumeBinds returns the mounts of the image's volumes, without those at the config's mounts,
// sorted by path (volumeMounts in server/container_create.go). A relative path is relative to
// the root.
func (b *builder) volumeBinds(taken map[string]bool) ([]bind, error) {
	users := b.containerOptions().GetUsernsOptions()
	var binds []bind
	for _, volume := range slices.Sorted(maps.Keys(b.Image.Volumes)) {
		destination := volume
		if !strings.HasPrefix(volume, "/") {
			destination = path.Join("/", volume)
		}
		if taken[path.Clean(destination)] {
			continue
		}
		source := b.Volumes[volume]
		if source == "" {
			return nil, fmt.Errorf("volume %q of the image has no directory on the host: create the container again", volume)
		}
		binds = append(binds, bind{
			source: source, destination: destination,
			uids: idMappings(users.GetUids()), gids: idMappings(users.GetGids()),
		})
	}
	return binds, nil
}

func idMappings(in []*runtimeapi.IDMapping) []specs.LinuxIDMapping {
	var out []specs.LinuxIDMapping
	for _, m := range in {
		out = append(out, specs.LinuxIDMapping{ContainerID: m.GetContainerId(), HostID: m.GetHostId(), Size: m.GetLength()})
	}
	return out
}
