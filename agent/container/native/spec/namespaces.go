package spec

import (
	"errors"
	"fmt"
	"slices"

	"github.com/opencontainers/runtime-spec/specs-go"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func (b *builder) containerOptions() *runtimeapi.NamespaceOption {
	return b.security.GetNamespaceOptions()
}

func (b *builder) podOptions() *runtimeapi.NamespaceOption {
	return b.Sandbox.GetLinux().GetSecurityContext().GetNamespaceOptions()
}

func (b *builder) hasNamespace(kind specs.LinuxNamespaceType) bool {
	return slices.ContainsFunc(b.spec.Linux.Namespaces, func(n specs.LinuxNamespace) bool { return n.Type == kind })
}

// namespaces sets the namespaces in containerd's order. A namespace of the host is left out.
// Network, IPC and UTS are the sandbox's whatever the container's options are; the UTS
// namespace is the host's with the host's network (opts/spec_opts.go and
// server/podsandbox/sandbox_run_linux.go).
func (b *builder) namespaces() error {
	pod := b.podOptions()
	if err := b.pidNamespace(); err != nil {
		return fmt.Errorf("namespace_options.pid: %w", err)
	}
	if pod.GetIpc() != runtimeapi.NamespaceMode_NODE {
		if err := b.join(specs.IPCNamespace, b.Namespaces.IPC); err != nil {
			return err
		}
	}
	hasNetwork := pod.GetNetwork() != runtimeapi.NamespaceMode_NODE
	if hasNetwork {
		if err := b.join(specs.UTSNamespace, b.Namespaces.UTS); err != nil {
			return err
		}
	}
	b.add(specs.MountNamespace, "")
	if hasNetwork {
		if err := b.join(specs.NetworkNamespace, b.Namespaces.Network); err != nil {
			return err
		}
	}
	// It hides the host's cgroups, which a privileged container may see (KEP-2254).
	if !b.security.GetPrivileged() {
		b.add(specs.CgroupNamespace, "")
	}
	if err := b.userNamespace(); err != nil {
		return fmt.Errorf("namespace_options.userns_options: %w", err)
	}
	return nil
}

// add adds a namespace: a new one if path is "".
func (b *builder) add(kind specs.LinuxNamespaceType, path string) {
	b.spec.Linux.Namespaces = append(b.spec.Linux.Namespaces, specs.LinuxNamespace{Type: kind, Path: path})
}

// join adds a namespace that exists. An empty path would make a new one.
func (b *builder) join(kind specs.LinuxNamespaceType, path string) error {
	if path == "" {
		return fmt.Errorf("sandbox has no %s namespace: create the sandbox again", kind)
	}
	b.add(kind, path)
	return nil
}

// pidNamespace decides the PID namespace. Without options the mode is POD, as in CRI.
func (b *builder) pidNamespace() error {
	pod := b.podOptions().GetPid()
	switch mode := b.containerOptions().GetPid(); mode {
	case runtimeapi.NamespaceMode_CONTAINER:
		b.add(specs.PIDNamespace, "")
	case runtimeapi.NamespaceMode_TARGET:
		if b.Namespaces.Target == "" {
			return fmt.Errorf("target container %q has no PID namespace: name a container of the pod that runs", b.containerOptions().GetTargetId())
		}
		b.add(specs.PIDNamespace, b.Namespaces.Target)
	case runtimeapi.NamespaceMode_NODE:
		if pod != runtimeapi.NamespaceMode_NODE {
			return fmt.Errorf("NODE needs a sandbox with NODE, which has %s: create the sandbox with NODE", pod)
		}
	case runtimeapi.NamespaceMode_POD:
		if pod == runtimeapi.NamespaceMode_NODE { // the sandbox's namespace is the host's
			return nil
		}
		if b.Namespaces.PID == "" {
			return errors.New("POD needs a sandbox with POD and its init process: create the sandbox again, or use CONTAINER")
		}
		b.add(specs.PIDNamespace, b.Namespaces.PID)
	default:
		return fmt.Errorf("mode %d is unknown: use POD, CONTAINER, NODE or TARGET", mode)
	}
	return nil
}

// userNamespace joins the sandbox's user namespace. The spec repeats its mapping, because the
// OCI runtime needs it for mounts and files.
func (b *builder) userNamespace() error {
	own, pod := b.containerOptions().GetUsernsOptions(), b.podOptions().GetUsernsOptions()
	uids, gids, err := UserMappings(own)
	if err != nil {
		return err
	}
	podUIDs, podGIDs, err := UserMappings(pod)
	if err != nil {
		return fmt.Errorf("of the sandbox: %w", err)
	}
	if own.GetMode() != pod.GetMode() || !slices.Equal(uids, podUIDs) || !slices.Equal(gids, podGIDs) {
		return errors.New("user namespace of the container differs from the sandbox's: use the same mode and mappings for both")
	}
	if len(uids) == 0 { // the host's
		return nil
	}
	if err := b.join(specs.UserNamespace, b.Namespaces.User); err != nil {
		return err
	}
	b.spec.Linux.UIDMappings, b.spec.Linux.GIDMappings = uids, gids
	return nil
}

// UserMappings returns the mappings of a user namespace: none for the host's, one of users and
// one of groups for the pod's (parseUsernsIDs in server/helpers.go).
func UserMappings(users *runtimeapi.UserNamespace) (uids, gids []specs.LinuxIDMapping, err error) {
	if users == nil {
		return nil, nil, nil
	}
	if uids, err = oneMapping(users.GetUids()); err != nil {
		return nil, nil, fmt.Errorf("uids: %w", err)
	}
	if gids, err = oneMapping(users.GetGids()); err != nil {
		return nil, nil, fmt.Errorf("gids: %w", err)
	}
	switch mode := users.GetMode(); mode {
	case runtimeapi.NamespaceMode_NODE:
		if len(uids) > 0 || len(gids) > 0 {
			return nil, nil, errors.New("mode NODE has mappings: remove them or use POD")
		}
	case runtimeapi.NamespaceMode_POD:
		if len(uids) == 0 || len(gids) == 0 {
			return nil, nil, errors.New("mode POD lacks mappings: set uids and gids")
		}
	case runtimeapi.NamespaceMode_CONTAINER, runtimeapi.NamespaceMode_TARGET:
		return nil, nil, fmt.Errorf("mode %s is not supported: use POD or NODE", mode)
	default:
		return nil, nil, fmt.Errorf("mode %d is unknown: use POD or NODE", mode)
	}
	return uids, gids, nil
}

// oneMapping returns a mapping of at most one range. containerd's labels of snapshots have
// room for one.
func oneMapping(in []*runtimeapi.IDMapping) ([]specs.LinuxIDMapping, error) {
	if len(in) > 1 {
		return nil, fmt.Errorf("%d mappings: only one is supported", len(in))
	}
	if len(in) == 1 && in[0].GetLength() == 0 {
		return nil, errors.New("mapping has length 0: set the number of IDs")
	}
	return idMappings(in), nil
}
