package spec

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/opencontainers/runtime-spec/specs-go"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

const (
	anyAccess  = "rwm" // read, write, mknod
	fifoDevice = "p"
)

// ignoredDirectories are the names of directories in a device directory whose nodes the
// container does not get (getDevices in pkg/oci/utils_unix.go).
var ignoredDirectories = []string{"pts", "shm", "fd", "mqueue", ".lxc", ".lxd-mounts", ".udev"}

// devices adds the devices of the config and allows them in the cgroup (WithDevices in
// opts/spec_linux_opts.go).
func (b *builder) devices() error {
	linux := b.spec.Linux
	for _, d := range b.Config.GetDevices() {
		nodes, err := b.nodes(d.GetHostPath(), d.GetContainerPath())
		if err != nil {
			return fmt.Errorf("devices: %w", err)
		}
		for _, node := range nodes {
			linux.Resources.Devices = append(linux.Resources.Devices, specs.LinuxDeviceCgroup{
				Allow: true, Type: node.Type, Major: &node.Major, Minor: &node.Minor, Access: d.GetPermissions(),
			})
			if b.Node.DeviceOwnership {
				node.UID = replaceID(node.UID, b.security.GetRunAsUser())
				node.GID = replaceID(node.GID, b.security.GetRunAsGroup())
			}
			linux.Devices = append(linux.Devices, node)
		}
	}
	return nil
}

// replaceID returns the security context's ID if it is set and not 0, else the host's. The step
// user checks its range.
func replaceID(host *uint32, id *runtimeapi.Int64Value) *uint32 {
	if id.GetValue() == 0 {
		return host
	}
	own := uint32(id.GetValue())
	return &own
}

// nodes returns the device nodes at hostPath or below it, with their paths in the container.
// An empty containerPath is that on the host.
func (b *builder) nodes(hostPath, containerPath string) ([]specs.LinuxDevice, error) {
	root, found, err := b.Node.Devices(hostPath)
	if err != nil {
		return nil, fmt.Errorf("read device nodes of %q: %w", hostPath, err)
	}
	var nodes []specs.LinuxDevice
	for _, node := range found {
		below, isBelow := strings.CutPrefix(node.Path, strings.TrimSuffix(root, "/")+"/")
		if isBelow && isIgnored(below, node.Type) {
			continue
		}
		if containerPath != "" {
			node.Path = containerPath
			if isBelow {
				node.Path = path.Join(containerPath, below)
			}
		}
		nodes = append(nodes, copyDevice(node))
	}
	return nodes, nil
}

// copyDevice returns the device with its own mode, user and group.
func copyDevice(d specs.LinuxDevice) specs.LinuxDevice {
	d.FileMode, d.UID, d.GID = clone(d.FileMode), clone(d.UID), clone(d.GID)
	return d
}

func clone[T any](p *T) *T {
	if p == nil {
		return nil
	}
	v := *p
	return &v
}

// isIgnored reports whether a container does not get a node, by its path relative to the
// device directory.
func isIgnored(below, kind string) bool {
	parts := strings.Split(below, "/")
	last := len(parts) - 1
	return kind == fifoDevice || parts[last] == "console" ||
		slices.ContainsFunc(parts[:last], func(name string) bool { return slices.Contains(ignoredDirectories, name) })
}

// allowAllDevices adds all devices of the host and allows every device in the cgroup.
func (b *builder) allowAllDevices() error {
	nodes, err := b.nodes("/dev", "")
	if err != nil {
		return fmt.Errorf("security_context.privileged: %w", err)
	}
	linux := b.spec.Linux
	linux.Devices = append(linux.Devices, nodes...)
	linux.Resources.Devices = []specs.LinuxDeviceCgroup{{Allow: true, Access: anyAccess}}
	return nil
}
