package spec

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/opencontainers/runtime-spec/specs-go"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	crierrors "k8s.io/cri-api/pkg/errors"
)

const (
	cgroupRoot = "/sys/fs/cgroup"
	hostShm    = "/dev/shm"
)

// defaultMounts returns the mounts of every container, in the order in which they are made
// (defaultMounts in pkg/oci/mounts.go without /run).
func defaultMounts() []specs.Mount {
	return []specs.Mount{
		{Destination: "/proc", Type: "proc", Source: "proc", Options: []string{"nosuid", "noexec", "nodev"}},
		{Destination: "/dev", Type: "tmpfs", Source: "tmpfs", Options: []string{"nosuid", "strictatime", "mode=755", "size=65536k"}},
		{Destination: "/dev/pts", Type: "devpts", Source: "devpts", Options: []string{"nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620", "gid=5"}},
		{Destination: "/dev/shm", Type: "tmpfs", Source: "shm", Options: []string{"nosuid", "noexec", "nodev", "mode=1777", "size=65536k"}},
		{Destination: "/dev/mqueue", Type: "mqueue", Source: "mqueue", Options: []string{"nosuid", "noexec", "nodev"}},
		{Destination: "/sys", Type: "sysfs", Source: "sysfs", Options: []string{"nosuid", "noexec", "nodev", "ro"}},
	}
}

// mounts sets the mounts (withMounts in opts/spec_linux_opts.go). Mounts of the config take
// precedence over the sandbox's files and the image's volumes, and all of them over the
// default mounts at the same path.
func (b *builder) mounts() error {
	binds, err := b.binds()
	if err != nil {
		return err
	}
	given := make(map[string]bool, len(binds))
	for i := range binds {
		given[path.Clean(binds[i].destination)] = true
	}
	for _, m := range append(defaultMounts(), b.cgroupMount()) {
		// A volume at /dev comes with its own content.
		if !given[m.Destination] && !(given["/dev"] && strings.HasPrefix(m.Destination, "/dev/")) {
			b.spec.Mounts = append(b.spec.Mounts, m)
		}
	}
	for i := range binds {
		m, err := b.bindMount(&binds[i])
		if err != nil {
			return fmt.Errorf("mounts: %q: %w", binds[i].destination, err)
		}
		b.spec.Mounts = append(b.spec.Mounts, m)
	}
	b.bindSys()
	return nil
}

// cgroupMount returns the mount of the cgroup tree. A mount in the host's cgroup namespace
// changes the options of the host's own mount, so it has to repeat them.
func (b *builder) cgroupMount() specs.Mount {
	m := specs.Mount{
		Source: "cgroup", Destination: cgroupRoot, Type: "cgroup",
		Options: []string{"nosuid", "noexec", "nodev", "relatime", "ro"},
	}
	if b.hasNamespace(specs.CgroupNamespace) {
		return m
	}
	host, err := b.Node.MountOf(cgroupRoot)
	if err != nil { // containerd goes on without the options
		return m
	}
	for option := range strings.SplitSeq(host.VFSOptions, ",") {
		if option == "nsdelegate" || option == "memory_recursiveprot" {
			m.Options = append(m.Options, option)
		}
	}
	return m
}

// bindSys replaces the mount of sysfs by a bind mount for containers with a user namespace on
// the host's network, because the kernel forbids them to mount sysfs. It is the last mount, as
// in containerd, and so covers what is mounted below /sys.
func (b *builder) bindSys() {
	if b.podOptions().GetNetwork() != runtimeapi.NamespaceMode_NODE || !b.hasNamespace(specs.UserNamespace) {
		return
	}
	b.spec.Mounts = slices.DeleteFunc(b.spec.Mounts, func(m specs.Mount) bool { return path.Clean(m.Destination) == "/sys" })
	b.spec.Mounts = append(b.spec.Mounts, specs.Mount{
		Source: "/sys", Destination: "/sys", Type: "bind", Options: []string{"rbind", "rro", "nosuid", "nodev", "noexec"},
	})
}

// bindMount returns the bind mount on the host's path without symbolic links.
func (b *builder) bindMount(m *bind) (specs.Mount, error) {
	out := specs.Mount{Destination: m.destination, Type: "bind", UIDMappings: m.uids, GIDMappings: m.gids}
	if m.source == "" {
		return out, errors.New("host_path is empty: set it, or set image")
	}
	source, err := b.Node.HostPath(m.source)
	if err != nil {
		return out, fmt.Errorf("resolve host path %q: %w", m.source, err)
	}
	out.Source = source
	propagation, err := b.propagation(source, m.propagation)
	if err != nil {
		return out, err
	}
	access, err := b.access(m)
	if err != nil {
		return out, err
	}
	out.Options = append([]string{"rbind", propagation, access}, m.options...)
	if (len(m.uids) > 0 || len(m.gids) > 0) && !b.Handler.IDMapMounts {
		return out, errors.New("ID mappings need an OCI runtime with idmapped mounts: install crun 1.9 or runc 1.2, or set hostUsers to true")
	}
	return out, nil
}

// propagation returns the option for a propagation mode. It raises the propagation of the root
// filesystem to what the mount needs. The host's mount must propagate at least so much.
func (b *builder) propagation(source string, mode runtimeapi.MountPropagation) (string, error) {
	linux := b.spec.Linux
	switch mode {
	case runtimeapi.MountPropagation_PROPAGATION_BIDIRECTIONAL:
		if err := b.checkPropagation(source, "Bidirectional", "shared:"); err != nil {
			return "", err
		}
		linux.RootfsPropagation = "rshared"
		return "rshared", nil
	case runtimeapi.MountPropagation_PROPAGATION_HOST_TO_CONTAINER:
		if err := b.checkPropagation(source, "HostToContainer", "shared:", "master:"); err != nil {
			return "", err
		}
		if linux.RootfsPropagation == "" {
			linux.RootfsPropagation = "rslave"
		}
		return "rslave", nil
	case runtimeapi.MountPropagation_PROPAGATION_PRIVATE:
	}
	return "rprivate", nil // unknown modes too
}

// checkPropagation fails if the mount of a host path has none of the optional fields of
// mountinfo.
func (b *builder) checkPropagation(source, mode string, fields ...string) error {
	host, err := b.Node.MountOf(source)
	if err != nil {
		return fmt.Errorf("find mount of %q for propagation %s: %w", source, mode, err)
	}
	for field := range strings.SplitSeq(host.Optional, " ") {
		for _, prefix := range fields {
			if strings.HasPrefix(field, prefix) {
				return nil
			}
		}
	}
	return fmt.Errorf("path %q is mounted on %q, which is not shared as propagation %s requires: run mount --make-rshared %s",
		source, host.Mountpoint, mode, host.Mountpoint)
}

// access returns the option for reading and writing (KEP-3857 for recursive read-only mounts).
func (b *builder) access(m *bind) (string, error) {
	switch {
	case !m.recursive && m.readonly:
		return "ro", nil
	case !m.recursive:
		return "rw", nil
	case !m.readonly:
		return "", errors.New("recursive_read_only conflicts with a writable mount: set readonly")
	case !b.Handler.RecursiveReadOnly:
		return "", fmt.Errorf("%w: recursive_read_only needs an OCI runtime with option rro: install crun 1.4 or runc 1.1, or set recursiveReadOnly to IfPossible",
			crierrors.ErrRROUnsupported)
	case m.propagation != runtimeapi.MountPropagation_PROPAGATION_PRIVATE:
		return "", fmt.Errorf("recursive_read_only needs private propagation, not %s: remove mountPropagation", m.propagation)
	}
	return "rro", nil
}
