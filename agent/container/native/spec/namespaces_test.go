package spec

import (
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

const (
	modeNode   = runtimeapi.NamespaceMode_NODE
	modePod    = runtimeapi.NamespaceMode_POD
	modeTarget = runtimeapi.NamespaceMode_TARGET
)

// users gives the pod a user namespace.
func users(c *Container) { usersOf(c, userns(modePod), userns(modePod)) }

func usersOf(c *Container, own, pod *runtimeapi.UserNamespace) {
	security(c).NamespaceOptions.UsernsOptions = own
	c.Sandbox.Linux.SecurityContext.NamespaceOptions.UsernsOptions = pod
}

func userns(mode runtimeapi.NamespaceMode) *runtimeapi.UserNamespace {
	return &runtimeapi.UserNamespace{Mode: mode, Uids: uidMap, Gids: gidMap}
}

// both sets options of the container and of the sandbox.
func both(change func(*runtimeapi.NamespaceOption)) func(*Container) {
	return func(c *Container) {
		change(security(c).NamespaceOptions)
		change(c.Sandbox.Linux.SecurityContext.NamespaceOptions)
	}
}

func TestNamespaces(t *testing.T) {
	all := func(s *specs.Spec) any { return s.Linux.Namespaces }
	pid := func(s *specs.Spec) any {
		for _, n := range s.Linux.Namespaces {
			if n.Type == specs.PIDNamespace {
				return "own or joined " + n.Path
			}
		}
		return "host's"
	}
	var (
		ipc     = specs.LinuxNamespace{Type: specs.IPCNamespace, Path: "/pins/s1/ipc"}
		uts     = specs.LinuxNamespace{Type: specs.UTSNamespace, Path: "/pins/s1/uts"}
		network = specs.LinuxNamespace{Type: specs.NetworkNamespace, Path: "/run/netns/s1"}
		mount   = specs.LinuxNamespace{Type: specs.MountNamespace}
		own     = specs.LinuxNamespace{Type: specs.PIDNamespace}
		cgroup  = specs.LinuxNamespace{Type: specs.CgroupNamespace}
	)
	run(t, []row{
		{name: "of a pod", part: all, want: []specs.LinuxNamespace{own, ipc, uts, mount, network, cgroup}},
		{name: "privileged", change: privileged, part: all, want: []specs.LinuxNamespace{own, ipc, uts, mount, network}},
		{name: "host network", change: both(func(o *runtimeapi.NamespaceOption) { o.Network = modeNode }), part: all, want: []specs.LinuxNamespace{own, ipc, mount, cgroup}},
		{name: "host IPC", change: both(func(o *runtimeapi.NamespaceOption) { o.Ipc = modeNode }), part: all, want: []specs.LinuxNamespace{own, uts, mount, network, cgroup}},
		{name: "host PID", change: both(func(o *runtimeapi.NamespaceOption) { o.Pid = modeNode }), part: all, want: []specs.LinuxNamespace{ipc, uts, mount, network, cgroup}},
		{name: "host network of the container only", change: func(c *Container) { security(c).NamespaceOptions.Network = modeNode }, part: all, want: []specs.LinuxNamespace{own, ipc, uts, mount, network, cgroup}},
		{name: "host IPC of the container only", change: func(c *Container) { security(c).NamespaceOptions.Ipc = modeNode }, part: all, want: []specs.LinuxNamespace{own, ipc, uts, mount, network, cgroup}},
		{name: "no network", change: func(c *Container) { c.Namespaces.Network = "" }, err: "sandbox has no network namespace"},
		{name: "no IPC", change: func(c *Container) { c.Namespaces.IPC = "" }, err: "sandbox has no ipc namespace"},
		{name: "no UTS", change: func(c *Container) { c.Namespaces.UTS = "" }, err: "sandbox has no uts namespace"},

		{name: "own PIDs", part: pid, want: "own or joined "},
		{name: "shared PIDs", change: both(func(o *runtimeapi.NamespaceOption) { o.Pid = modePod }), part: pid, want: "own or joined /pins/s1/pid"},
		{name: "no options", change: func(c *Container) { security(c).NamespaceOptions = nil }, part: pid, want: "own or joined /pins/s1/pid"},
		{name: "shared PIDs without init", change: func(c *Container) { security(c).NamespaceOptions.Pid, c.Namespaces.PID = modePod, "" }, err: "namespace_options.pid: POD needs"},
		{name: "shared PIDs of the host", change: func(c *Container) {
			security(c).NamespaceOptions.Pid = modePod
			c.Sandbox.Linux.SecurityContext.NamespaceOptions.Pid = modeNode
		}, part: pid, want: "host's"},
		{name: "host PIDs in another sandbox", change: func(c *Container) { security(c).NamespaceOptions.Pid = modeNode }, err: "namespace_options.pid: NODE needs"},
		{name: "target", change: func(c *Container) {
			security(c).NamespaceOptions.Pid, c.Namespaces.Target = modeTarget, "/proc/7/ns/pid"
		}, part: pid, want: "own or joined /proc/7/ns/pid"},
		{name: "target that does not run", change: func(c *Container) {
			security(c).NamespaceOptions.Pid, security(c).NamespaceOptions.TargetId = modeTarget, "c0"
		}, err: `target container "c0"`},
		{name: "unknown PID mode", change: func(c *Container) { security(c).NamespaceOptions.Pid = 9 }, err: "namespace_options.pid: mode 9"},
	})
}

func TestUserNamespace(t *testing.T) {
	last := func(s *specs.Spec) any { return s.Linux.Namespaces[len(s.Linux.Namespaces)-1] }
	maps := func(s *specs.Spec) any { return [][]specs.LinuxIDMapping{s.Linux.UIDMappings, s.Linux.GIDMappings} }
	none := [][]specs.LinuxIDMapping{nil, nil}
	cgroup := specs.LinuxNamespace{Type: specs.CgroupNamespace}
	with := func(change func(own, pod *runtimeapi.UserNamespace)) func(*Container) {
		return func(c *Container) {
			own, pod := userns(modePod), userns(modePod)
			change(own, pod)
			usersOf(c, own, pod)
		}
	}
	two := []*runtimeapi.IDMapping{{HostId: 1, Length: 1}, {HostId: 2, ContainerId: 1, Length: 1}}
	run(t, []row{
		{name: "no options", part: last, want: cgroup},
		{name: "no options, no mappings", part: maps, want: none},
		{name: "host's", change: func(c *Container) {
			usersOf(c, &runtimeapi.UserNamespace{Mode: modeNode}, &runtimeapi.UserNamespace{Mode: modeNode})
		}, part: last, want: cgroup},
		{name: "pod's", change: users, part: last, want: specs.LinuxNamespace{Type: specs.UserNamespace, Path: "/pins/s1/user"}},
		{name: "mappings", change: users, part: maps, want: [][]specs.LinuxIDMapping{{{HostID: 70000, Size: 65536}}, {{HostID: 80000, Size: 65536}}}},
		{name: "no pin", change: func(c *Container) { users(c); c.Namespaces.User = "" }, err: "sandbox has no user namespace"},
		{name: "two mappings", change: with(func(own, pod *runtimeapi.UserNamespace) { own.Uids, pod.Uids = two, two }), err: "uids: 2 mappings"},
		{name: "two mappings of groups", change: with(func(own, pod *runtimeapi.UserNamespace) { own.Gids, pod.Gids = two, two }), err: "gids: 2 mappings"},
		{name: "length 0", change: with(func(own, _ *runtimeapi.UserNamespace) { own.Uids = []*runtimeapi.IDMapping{{}} }), err: "uids: mapping has length 0"},
		{name: "no mapping of users", change: with(func(own, pod *runtimeapi.UserNamespace) { own.Uids, pod.Uids = nil, nil }), err: "mode POD lacks mappings"},
		{name: "no mapping of groups", change: with(func(own, pod *runtimeapi.UserNamespace) { own.Gids, pod.Gids = nil, nil }), err: "mode POD lacks mappings"},
		{name: "host's with mapping", change: func(c *Container) {
			usersOf(c, &runtimeapi.UserNamespace{Mode: modeNode, Uids: uidMap}, &runtimeapi.UserNamespace{Mode: modeNode})
		}, err: "userns_options: mode NODE has mappings"},
		{name: "host's with mapping of groups", change: func(c *Container) {
			usersOf(c, &runtimeapi.UserNamespace{Mode: modeNode, Gids: gidMap}, &runtimeapi.UserNamespace{Mode: modeNode})
		}, err: "userns_options: mode NODE has mappings"},
		{name: "mode of containers", change: with(func(own, _ *runtimeapi.UserNamespace) { own.Mode = runtimeapi.NamespaceMode_CONTAINER }), err: "mode CONTAINER is not supported"},
		{name: "unknown mode", change: with(func(own, _ *runtimeapi.UserNamespace) { own.Mode = 9 }), err: "mode 9 is unknown"},
		{name: "sandbox without", change: func(c *Container) { usersOf(c, userns(modePod), nil) }, err: "differs from the sandbox's"},
		{name: "container without", change: func(c *Container) { usersOf(c, nil, userns(modePod)) }, err: "differs from the sandbox's"},
		{name: "other mode", change: func(c *Container) { usersOf(c, &runtimeapi.UserNamespace{Mode: modeNode}, userns(modePod)) }, err: "differs from the sandbox's"},
		{name: "other users", change: with(func(_, pod *runtimeapi.UserNamespace) { pod.Uids = gidMap }), err: "differs from the sandbox's"},
		{name: "other groups", change: with(func(_, pod *runtimeapi.UserNamespace) { pod.Gids = uidMap }), err: "differs from the sandbox's"},
		{name: "invalid sandbox", change: with(func(_, pod *runtimeapi.UserNamespace) { pod.Uids = two }), err: "of the sandbox: uids: 2 mappings"},
		{name: "sandbox on the host with mappings", change: func(c *Container) { usersOf(c, &runtimeapi.UserNamespace{Mode: modeNode}, userns(modeNode)) }, err: "of the sandbox: mode NODE has mappings"},
		{name: "sandbox on the host, container without", change: func(c *Container) { usersOf(c, nil, &runtimeapi.UserNamespace{Mode: modeNode}) }, err: "differs from the sandbox's"},
	})
}
