package spec

import (
	"errors"
	"fmt"
	"strings"

	"github.com/moby/sys/mountinfo"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/opencontainers/runtime-spec/specs-go"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Container is the input of Build. Build does not modify it, and the spec shares no memory
// with it.
type Container struct {
	// ID and SandboxID are the IDs in the runtime. ID is the last part of the cgroup's path.
	ID, SandboxID string
	// Config and Sandbox are the CRI configs. Sandbox must be the config that the sandbox was
	// created with.
	Config  *runtimeapi.ContainerConfig
	Sandbox *runtimeapi.PodSandboxConfig
	// Image is the config of the image.
	Image *ocispec.ImageConfig
	// ImageName is the name of the image in containerd. The annotation has it if the config
	// has no name that the user specified.
	ImageName string
	// Users are the users and groups of the container's root filesystem; nil for none.
	Users *Users
	// Namespaces are the paths of the sandbox's namespaces.
	Namespaces Namespaces
	// Files are the host paths of the sandbox's files.
	Files Files
	// Volumes maps each path in Image.Volumes to a directory on the host that has the content
	// of that path in the image. Paths that the config mounts itself need no entry.
	Volumes map[string]string
	// ImageMounts are the host paths of the mounts with an image, by index in Config.Mounts:
	// the root of the mounted image, or the sub path in it without symbolic links that lead
	// out of it.
	ImageMounts map[int]string
	// Handler is the OCI runtime that will run the container.
	Handler Handler
	// Node has the facts of the node.
	Node *Node
}

// Namespaces are paths of namespaces, of pins or in /proc. "" means that the sandbox has no
// such namespace, which is an error if the configs need it.
type Namespaces struct {
	Network, IPC, UTS, User string
	// PID is the namespace that the containers share with PID mode POD.
	PID string
	// Target is the PID namespace of the container with NamespaceOption.target_id. The caller
	// has checked that the container runs, in the same sandbox.
	Target string
}

// Files are host paths of a sandbox's files. "" mounts nothing.
type Files struct {
	Hostname, Hosts, ResolvConf string
	// Shm is the tmpfs for /dev/shm. With IPC mode NODE the host's /dev/shm replaces it.
	Shm string
}

// Handler has the features of an OCI runtime, as its command "features" reports them.
type Handler struct {
	RecursiveReadOnly bool // mount option rro
	IDMapMounts       bool // ID mappings of mounts
}

// Node has the facts of the node. All functions are required. Build calls them synchronously,
// and returns their errors with the path or name that they were called with.
type Node struct {
	// Hostname is the value of HOSTNAME in sandboxes without a hostname of their own.
	Hostname string
	// Capabilities are all capabilities that the agent has, with the prefix CAP_.
	Capabilities []string
	// SwapAccounting and HugeTLB report whether cgroups have memory.swap.max and the
	// controller hugetlb.
	SwapAccounting, HugeTLB bool
	// SELinux reports whether the kernel enforces or logs SELinux policy.
	SELinux bool
	// DeviceOwnership gives config devices the user and group of the security context
	// (containerd's device_ownership_from_security_context).
	DeviceOwnership bool
	// Seccomp reports whether the kernel has seccomp filters.
	Seccomp bool
	// AppArmor reports whether the kernel has AppArmor enabled and apparmor_parser is present.
	AppArmor bool

	// HostPath returns path without a symbolic link as its last element. It makes missing
	// directories with mode 0755, so that a missing path becomes a directory.
	HostPath func(path string) (string, error)
	// MountOf returns the mount that path is in. Build reads Mountpoint, Optional and
	// VFSOptions.
	MountOf func(path string) (*mountinfo.Info, error)
	// Devices resolves symbolic links in path and returns the result as root. nodes are the
	// device nodes and FIFOs at root, or at any depth below root if it is a directory. Path is
	// on the host; numbers, mode, user and group are those of the node. It may leave out
	// what Build ignores: directories pts, shm, fd, mqueue, .lxc, .lxd-mounts and .udev, files
	// named console, and FIFOs below a directory. It fails if path is absent or neither a
	// device node, a FIFO nor a directory.
	Devices func(path string) (root string, nodes []specs.LinuxDevice, err error)
	// DefaultSeccomp returns the profile RuntimeDefault for a spec with capabilities. It is
	// DefaultProfile of containerd's contrib/seccomp. It is an input because the result
	// depends on the architecture and the kernel's version.
	DefaultSeccomp func(*specs.Spec) *specs.LinuxSeccomp
	// ReadSeccomp reads the seccomp profile at path. It must limit the size.
	ReadSeccomp func(path string) ([]byte, error)
	// AppArmorLoaded reports whether the kernel has an AppArmor profile of that name.
	AppArmorLoaded func(name string) (bool, error)
}

// check returns an error if a required part of the input is missing.
func (c *Container) check() error {
	n := c.Node
	switch {
	case c.ID == "" || strings.ContainsAny(c.ID, "/\x00"):
		return fmt.Errorf("container ID %q is empty or has a slash or NUL: generate another", c.ID)
	case c.Config.GetMetadata() == nil:
		return errors.New("container config has no metadata: set metadata.name")
	case c.Sandbox.GetMetadata() == nil:
		return errors.New("sandbox config has no metadata: set the metadata that the sandbox was created with")
	case c.Image == nil:
		return errors.New("image config is missing: pull the image again")
	case n == nil || n.HostPath == nil || n.MountOf == nil || n.Devices == nil || n.DefaultSeccomp == nil ||
		n.ReadSeccomp == nil || n.AppArmorLoaded == nil:
		return errors.New("facts of the node are incomplete: set Node and all its functions")
	}
	return nil
}
