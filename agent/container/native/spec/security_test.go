package spec

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"slices"
	"testing"

	"github.com/containerd/containerd/v2/contrib/seccomp"
	"github.com/opencontainers/runtime-spec/specs-go"
	"google.golang.org/protobuf/reflect/protoreflect"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func TestPaths(t *testing.T) {
	set := func(c *Container) {
		security(c).MaskedPaths, security(c).ReadonlyPaths = []string{"/proc/kcore"}, []string{"/proc/sys"}
	}
	both := func(s *specs.Spec) any { return [][]string{s.Linux.MaskedPaths, s.Linux.ReadonlyPaths} }
	run(t, []row{
		{name: "none", part: both, want: [][]string{nil, nil}},
		{name: "as given", change: set, part: both, want: [][]string{{"/proc/kcore"}, {"/proc/sys"}}},
		{name: "privileged", change: func(c *Container) { set(c); privileged(c) }, part: both, want: [][]string{nil, nil}},
	})
}

func rule(kind string, major, minor int64, access string) specs.LinuxDeviceCgroup {
	return specs.LinuxDeviceCgroup{Allow: true, Type: kind, Major: &major, Minor: &minor, Access: access}
}

func TestDevices(t *testing.T) {
	deny := specs.LinuxDeviceCgroup{Allow: false, Access: "rwm"}
	at := func(d specs.LinuxDevice, path string) specs.LinuxDevice { d.Path = path; return d }
	own := func(d specs.LinuxDevice, uid, gid uint32) specs.LinuxDevice { d.UID, d.GID = &uid, &gid; return d }
	devices := func(s *specs.Spec) any { return s.Linux.Devices }
	rules := func(s *specs.Spec) any { return s.Linux.Resources.Devices }
	add := func(all ...*runtimeapi.Device) func(*Container) { return func(c *Container) { c.Config.Devices = all } }
	gpio := device("/dev/gpiochip0", "c", 254, 0)
	run(t, []row{
		{name: "link", change: add(&runtimeapi.Device{HostPath: "/dev/gpio", ContainerPath: "/dev/pins", Permissions: "rw"}), part: devices, want: []specs.LinuxDevice{at(gpio, "/dev/pins")}},
		{name: "rule", change: add(&runtimeapi.Device{HostPath: "/dev/gpio", ContainerPath: "/dev/pins", Permissions: "rw"}), part: rules, want: []specs.LinuxDeviceCgroup{deny, rule("c", 254, 0, "rw")}},
		{name: "path on the host", change: add(&runtimeapi.Device{HostPath: "/dev/gpio"}), part: devices, want: []specs.LinuxDevice{gpio}},
		{name: "FIFO", change: add(&runtimeapi.Device{HostPath: "/dev/fifo", ContainerPath: "/f"}), part: devices, want: []specs.LinuxDevice{at(device("", "p", 0, 0), "/f")}},
		{name: "directory", change: add(&runtimeapi.Device{HostPath: "/dev", ContainerPath: "/d"}), part: devices, want: []specs.LinuxDevice{
			at(device("", "c", 1, 3), "/d/null"), at(device("", "c", 116, 2), "/d/snd/pcm"), at(device("", "b", 179, 0), "/d/mmcblk0"),
		}},
		{name: "directory, rules", change: add(&runtimeapi.Device{HostPath: "/dev", Permissions: "r"}), part: rules, want: []specs.LinuxDeviceCgroup{
			deny, rule("c", 1, 3, "r"), rule("c", 116, 2, "r"), rule("b", 179, 0, "r"),
		}},
		{name: "absent", change: add(&runtimeapi.Device{HostPath: "/dev/none"}), err: `devices: read device nodes of "/dev/none"`},
		{name: "owner of the node", change: func(c *Container) {
			security(c).RunAsUser, security(c).RunAsGroup = id(1000), id(29)
			add(&runtimeapi.Device{HostPath: "/dev/gpio"})(c)
		}, part: devices, want: []specs.LinuxDevice{gpio}},
		{name: "owner of the security context", change: func(c *Container) {
			c.Node.DeviceOwnership = true
			security(c).RunAsUser, security(c).RunAsGroup = id(1000), id(29)
			add(&runtimeapi.Device{HostPath: "/dev/gpio"})(c)
		}, part: devices, want: []specs.LinuxDevice{own(gpio, 1000, 29)}},
		{name: "owner root keeps the node's", change: func(c *Container) {
			c.Node.DeviceOwnership = true
			security(c).RunAsUser, security(c).RunAsGroup = id(0), id(29)
			add(&runtimeapi.Device{HostPath: "/dev/gpio"})(c)
		}, part: devices, want: []specs.LinuxDevice{own(gpio, 7, 29)}},
	})
}

func TestIgnoredDevices(t *testing.T) {
	for path, want := range map[string]bool{
		"null": false, "snd/pcm": false, "console": true, "a/console": true, "pts/0": true, "shm/x": true, "fd/1": true,
		"mqueue/q": true, ".lxc/x": true, ".lxd-mounts/x": true, ".udev/x": true, "a/pts/0": true, "pts": false, "xpts/0": false,
	} {
		if got := isIgnored(path, "c"); got != want {
			t.Errorf("%s: %v", path, got)
		}
	}
	if !isIgnored("x", "p") {
		t.Error("a FIFO in a directory is not ignored")
	}
}

func TestCapabilities(t *testing.T) {
	all := func(s *specs.Spec) any {
		c := s.Process.Capabilities
		if !slices.Equal(c.Bounding, c.Permitted) || !slices.Equal(c.Bounding, c.Effective) || c.Ambient != nil || c.Inheritable != nil {
			return c
		}
		return c.Bounding
	}
	set := func(add, drop []string) func(*Container) {
		return func(c *Container) {
			security(c).Capabilities = &runtimeapi.Capability{AddCapabilities: add, DropCapabilities: drop, AddAmbientCapabilities: add}
		}
	}
	without := func(names ...string) []string {
		return slices.DeleteFunc(defaultCapabilities(), func(n string) bool { return slices.Contains(names, n) })
	}
	run(t, []row{
		{name: "default", part: all, want: []string{
			"CAP_CHOWN", "CAP_DAC_OVERRIDE", "CAP_FSETID", "CAP_FOWNER", "CAP_MKNOD", "CAP_NET_RAW", "CAP_SETGID", "CAP_SETUID",
			"CAP_SETFCAP", "CAP_SETPCAP", "CAP_NET_BIND_SERVICE", "CAP_SYS_CHROOT", "CAP_KILL", "CAP_AUDIT_WRITE",
		}},
		{name: "empty", change: set(nil, nil), part: all, want: defaultCapabilities()},
		{name: "added", change: set([]string{"net_admin", "CHOWN"}, nil), part: all, want: append(defaultCapabilities(), "CAP_NET_ADMIN")},
		{name: "dropped", change: set(nil, []string{"mknod"}), part: all, want: without("CAP_MKNOD")},
		{name: "added and dropped", change: set([]string{"SYS_TIME"}, []string{"SYS_TIME"}), part: all, want: defaultCapabilities()},
		{name: "all added", change: set([]string{"All"}, nil), part: all, want: []string{"CAP_CHOWN", "CAP_SYS_ADMIN", "CAP_BPF"}},
		{name: "all but one", change: set([]string{"ALL"}, []string{"CHOWN"}), part: all, want: []string{"CAP_SYS_ADMIN", "CAP_BPF"}},
		{name: "all dropped", change: set(nil, []string{"all"}), part: all, want: []string(nil)},
		{name: "all dropped but one", change: set([]string{"NET_BIND_SERVICE"}, []string{"ALL"}), part: all, want: []string{"CAP_NET_BIND_SERVICE"}},
		{name: "all added and dropped", change: set([]string{"ALL"}, []string{"ALL"}), part: all, want: []string(nil)},
		{name: "privileged", change: func(c *Container) { set(nil, []string{"ALL"})(c); privileged(c) }, part: all, want: []string{"CAP_CHOWN", "CAP_SYS_ADMIN", "CAP_BPF"}},
	})
}

func TestPrivileged(t *testing.T) {
	gpio := func(c *Container) { c.Config.Devices = []*runtimeapi.Device{{HostPath: "/dev/gpio", Permissions: "r"}} }
	run(t, []row{
		{name: "all devices", change: func(c *Container) { gpio(c); privileged(c) }, part: func(s *specs.Spec) any { return s.Linux.Devices }, want: []specs.LinuxDevice{
			device("/dev/gpiochip0", "c", 254, 0), device("/dev/null", "c", 1, 3), device("/dev/snd/pcm", "c", 116, 2), device("/dev/mmcblk0", "b", 179, 0),
		}},
		{name: "all allowed", change: func(c *Container) { gpio(c); privileged(c) }, part: func(s *specs.Spec) any { return s.Linux.Resources.Devices }, want: []specs.LinuxDeviceCgroup{{Allow: true, Access: "rwm"}}},
		{name: "devices unreadable", change: func(c *Container) {
			privileged(c)
			c.Node.Devices = func(string) (string, []specs.LinuxDevice, error) { return "", nil, fs.ErrPermission }
		}, err: "security_context.privileged: read device nodes"},
		{name: "writable sysfs", change: privileged, part: func(s *specs.Spec) any { return at("/sys")(s).([]specs.Mount)[0].Options }, want: []string{"nosuid", "noexec", "nodev", "rw"}},
		{name: "other mounts unchanged", change: func(c *Container) {
			privileged(c)
			mounts(&runtimeapi.Mount{ContainerPath: "/x", HostPath: "/h", Readonly: true})(c)
		}, part: at("/x"), want: boundAt("/x", "/h", "rprivate", "ro")},
		{name: "no_new_privs", change: func(c *Container) { privileged(c); security(c).NoNewPrivs = true }, part: func(s *specs.Spec) any { return s.Process.NoNewPrivileges }, want: true},
	})
}

func profile(kind runtimeapi.SecurityProfile_ProfileType, ref string) *runtimeapi.SecurityProfile {
	return &runtimeapi.SecurityProfile{ProfileType: kind, LocalhostRef: ref}
}

const (
	runtimeDefault = runtimeapi.SecurityProfile_RuntimeDefault
	unconfined     = runtimeapi.SecurityProfile_Unconfined
	localhost      = runtimeapi.SecurityProfile_Localhost
)

func TestSeccomp(t *testing.T) {
	set := func(kind runtimeapi.SecurityProfile_ProfileType, ref string, more ...func(*Container)) func(*Container) {
		return func(c *Container) {
			security(c).Seccomp = profile(kind, ref)
			for _, change := range more {
				change(c)
			}
		}
	}
	off := func(c *Container) { c.Node.Seccomp = false }
	filter := func(s *specs.Spec) any {
		if s.Linux.Seccomp == nil {
			return nil
		}
		return []string{string(s.Linux.Seccomp.DefaultAction), s.Linux.Seccomp.ListenerMetadata}
	}
	run(t, []row{
		{name: "none", part: filter},
		{name: "unconfined", change: set(unconfined, ""), part: filter},
		{name: "default, with the final capabilities", change: set(runtimeDefault, "", func(c *Container) {
			security(c).Capabilities = &runtimeapi.Capability{AddCapabilities: []string{"SYS_ADMIN"}, DropCapabilities: []string{"ALL"}}
		}), part: filter, want: []string{"SCMP_ACT_ERRNO", "CAP_SYS_ADMIN"}},
		{name: "file", change: set(localhost, "/profiles/audit.json"), part: filter, want: []string{"SCMP_ACT_LOG", ""}},
		{name: "file with prefix", change: set(localhost, "localhost//profiles/audit.json"), part: filter, want: []string{"SCMP_ACT_LOG", ""}},
		{name: "absent file", change: set(localhost, "/profiles/none.json"), err: `seccomp: read profile "/profiles/none.json"`},
		{name: "malformed file", change: set(localhost, "/profiles/bad.json"), err: `seccomp: decode profile "/profiles/bad.json"`},
		{name: "reference without localhost", change: set(runtimeDefault, "x"), err: `seccomp: localhost_ref "x"`},
		{name: "reference and unconfined", change: set(unconfined, "x"), err: `seccomp: localhost_ref "x"`},
		{name: "unknown type", change: set(9, ""), err: "seccomp: profile_type 9"},
		{name: "privileged", change: set(runtimeDefault, "", privileged), part: filter},
		{name: "privileged, file", change: set(localhost, "/profiles/audit.json", privileged), part: filter},
		{name: "not in the kernel", change: set(runtimeDefault, "", off), err: "seccomp is not supported"},
		{name: "not in the kernel, unconfined", change: set(unconfined, "", off), part: filter},
		{name: "not in the kernel, none", change: off, part: filter},
	})
}

// TestDefaultSeccomp uses containerd's profile: it allows mount to a container with
// CAP_SYS_ADMIN only.
func TestDefaultSeccomp(t *testing.T) {
	for _, add := range [][]string{nil, {"SYS_ADMIN"}} {
		c := simple(t)
		c.Node.DefaultSeccomp = seccomp.DefaultProfile
		security(c).Seccomp = profile(runtimeDefault, "")
		security(c).Capabilities = &runtimeapi.Capability{AddCapabilities: add}
		s, err := Build(c)
		if err != nil {
			t.Fatal(err)
		}
		allowed := slices.ContainsFunc(s.Linux.Seccomp.Syscalls, func(rule specs.LinuxSyscall) bool {
			return rule.Action == specs.ActAllow && slices.Contains(rule.Names, "mount")
		})
		if allowed != (add != nil) {
			t.Errorf("with %v mount is allowed: %v", add, allowed)
		}
	}
}

func TestAppArmor(t *testing.T) {
	on := func(more ...func(*Container)) func(*Container) {
		return func(c *Container) {
			c.Node.AppArmor = true
			for _, change := range more {
				change(c)
			}
		}
	}
	set := func(kind runtimeapi.SecurityProfile_ProfileType, ref string) func(*Container) {
		return func(c *Container) { security(c).Apparmor = profile(kind, ref) }
	}
	old := func(name string) func(*Container) {
		return func(c *Container) {
			m := security(c).ProtoReflect()
			m.Set(m.Descriptor().Fields().ByName("apparmor_profile"), protoreflect.ValueOfString(name))
		}
	}
	name := func(s *specs.Spec) any { return s.Process.ApparmorProfile }
	run(t, []row{
		{name: "off", part: name, want: ""},
		{name: "off, unconfined", change: set(unconfined, ""), part: name, want: ""},
		{name: "off, default", change: set(runtimeDefault, ""), err: "apparmor is not supported"},
		{name: "off, file", change: set(localhost, "own"), err: "apparmor is not supported"},
		{name: "off, deprecated", change: old("runtime/default"), err: "apparmor is not supported"},
		{name: "none is default", change: on(), part: name, want: "cri-containerd.apparmor.d"},
		{name: "default", change: on(set(runtimeDefault, "")), part: name, want: "cri-containerd.apparmor.d"},
		{name: "default, privileged", change: on(set(runtimeDefault, ""), privileged), part: name, want: ""},
		{name: "none, privileged", change: on(privileged), part: name, want: ""},
		{name: "default not loaded", change: on(func(c *Container) {
			c.Node.AppArmorLoaded = func(string) (bool, error) { return false, nil }
		}), err: "apparmor profile not found cri-containerd.apparmor.d"},
		{name: "unconfined", change: on(set(unconfined, "")), part: name, want: ""},
		{name: "own", change: on(set(localhost, "own")), part: name, want: "own"},
		{name: "own, privileged", change: on(set(localhost, "own"), privileged), part: name, want: "own"},
		{name: "own with prefix", change: on(set(localhost, "localhost/own")), part: name, want: "own"},
		{name: "own not loaded", change: on(set(localhost, "other")), err: "apparmor profile not found other"},
		{name: "own without name", change: on(set(localhost, "")), err: "localhost_ref is empty"},
		{name: "profiles unreadable", change: on(set(localhost, "broken")), err: `read whether profile "broken" is loaded`},
		{name: "reference without localhost", change: on(set(runtimeDefault, "own")), err: `apparmor: localhost_ref "own"`},
		{name: "unknown type", change: on(set(9, "")), err: "apparmor: profile_type 9"},
		{name: "deprecated default", change: on(old("docker/default")), part: name, want: "cri-containerd.apparmor.d"},
		{name: "deprecated unconfined", change: on(old("unconfined")), part: name, want: ""},
		{name: "deprecated own", change: on(old("localhost/own")), part: name, want: "own"},
		{name: "deprecated, malformed", change: on(old("own")), err: `apparmor_profile "own" is invalid`},
		{name: "new over deprecated", change: on(old("localhost/other"), set(localhost, "own")), part: name, want: "own"},
	})
	c := simple(t)
	on(set(localhost, "broken"))(c)
	if _, err := Build(c); !errors.Is(err, fs.ErrPermission) {
		t.Error(err)
	}
}

func TestResources(t *testing.T) {
	set := func(change func(*runtimeapi.LinuxContainerResources)) func(*Container) {
		return func(c *Container) { change(c.Config.Linux.Resources) }
	}
	text := func(part func(*specs.LinuxResources) any) func(*specs.Spec) any {
		return func(s *specs.Spec) any {
			out, err := json.Marshal(part(s.Linux.Resources))
			if err != nil {
				return err
			}
			return string(out)
		}
	}
	cpu := text(func(r *specs.LinuxResources) any { return r.CPU })
	memory := text(func(r *specs.LinuxResources) any { return r.Memory })
	huge := text(func(r *specs.LinuxResources) any { return r.HugepageLimits })
	path := func(s *specs.Spec) any { return s.Linux.CgroupsPath }
	limit := set(func(r *runtimeapi.LinuxContainerResources) { r.MemoryLimitInBytes = 5 << 30 })
	swap := set(func(r *runtimeapi.LinuxContainerResources) {
		r.MemoryLimitInBytes, r.MemorySwapLimitInBytes = 5<<30, 6<<30
	})
	pages := set(func(r *runtimeapi.LinuxContainerResources) {
		r.HugepageLimits = []*runtimeapi.HugepageLimit{{PageSize: "2MB", Limit: 1 << 33}, {PageSize: "1GB"}}
	})
	noSwap := func(c *Container) { c.Node.SwapAccounting = false }
	run(t, []row{
		{name: "no CPU limits", part: cpu, want: "{}"},
		{name: "CPU", change: set(func(r *runtimeapi.LinuxContainerResources) {
			r.CpuShares, r.CpuQuota, r.CpuPeriod, r.CpusetCpus, r.CpusetMems = 102, 5<<32, 100000, "0-1", "0"
		}), part: cpu, want: `{"shares":102,"quota":21474836480,"period":100000,"cpus":"0-1","mems":"0"}`},
		{name: "no quota", change: set(func(r *runtimeapi.LinuxContainerResources) { r.CpuQuota = -1 }), part: cpu, want: `{"quota":-1}`},
		{name: "no memory limits", part: memory, want: "{}"},
		{name: "memory is the swap limit", change: limit, part: memory, want: `{"limit":5368709120,"swap":5368709120}`},
		{name: "memory without swap accounting", change: func(c *Container) { limit(c); noSwap(c) }, part: memory, want: `{"limit":5368709120}`},
		{name: "swap", change: swap, part: memory, want: `{"limit":5368709120,"swap":6442450944}`},
		{name: "swap without accounting", change: func(c *Container) { swap(c); noSwap(c) }, part: memory, want: `{"limit":5368709120}`},
		{name: "swap alone", change: set(func(r *runtimeapi.LinuxContainerResources) { r.MemorySwapLimitInBytes = 7 }), part: memory, want: `{"swap":7}`},
		{name: "huge pages", change: pages, part: huge, want: `[{"pageSize":"2MB","limit":8589934592},{"pageSize":"1GB","limit":0}]`},
		{name: "huge pages without controller", change: func(c *Container) { pages(c); c.Node.HugeTLB = false }, part: huge, want: "null"},
		{name: "unified", change: set(func(r *runtimeapi.LinuxContainerResources) { r.Unified = map[string]string{"memory.oom.group": "1"} }), part: text(func(r *specs.LinuxResources) any { return r.Unified }), want: `{"memory.oom.group":"1"}`},
		{name: "none", change: func(c *Container) { c.Config.Linux.Resources = nil }, part: text(func(r *specs.LinuxResources) any { return r }), want: `{"devices":[{"allow":false,"access":"rwm"}]}`},
		{name: "cgroup", part: path, want: "/kubepods/podu1/c1"},
		{name: "cgroup without resources", change: func(c *Container) { c.Config.Linux.Resources = nil }, part: path, want: "/kubepods/podu1/c1"},
		{name: "slice", change: func(c *Container) { c.Sandbox.Linux.CgroupParent = "/kubepods.slice/kubepods-podu1.slice" }, part: path, want: "kubepods-podu1.slice:cri-containerd:c1"},
		{name: "no cgroup parent", change: func(c *Container) { c.Sandbox.Linux.CgroupParent = "" }, part: path, want: "/k8s.io/c1"},
	})
}

// TestSharesNoMemory changes what the spec and its input have in common.
func TestSharesNoMemory(t *testing.T) {
	c := simple(t)
	mode := os.FileMode(0o600)
	nodes := []specs.LinuxDevice{{Path: "/dev/x", Type: "c", FileMode: &mode}}
	c.Node.Devices = func(path string) (string, []specs.LinuxDevice, error) { return "/dev/x", nodes, nil }
	c.Config.Devices = []*runtimeapi.Device{{HostPath: "/dev/x"}}
	security(c).MaskedPaths, security(c).ReadonlyPaths = []string{"a"}, []string{"b"}
	security(c).Capabilities = &runtimeapi.Capability{AddCapabilities: []string{"ALL"}}
	c.Config.Linux.Resources.Unified = map[string]string{"k": "v"}
	s, err := Build(c)
	if err != nil {
		t.Fatal(err)
	}
	*s.Linux.Devices[0].FileMode = 0
	s.Linux.MaskedPaths[0], s.Linux.ReadonlyPaths[0], s.Linux.Resources.Unified["k"], s.Process.Args[0] = "", "", "", ""
	s.Process.Capabilities.Bounding[0] = ""
	if mode != 0o600 || security(c).MaskedPaths[0] != "a" || security(c).ReadonlyPaths[0] != "b" || c.Config.Linux.Resources.Unified["k"] != "v" ||
		c.Config.Command[0] != "/bin/web" || c.Node.Capabilities[0] != "CAP_CHOWN" || s.Process.Capabilities.Effective[0] == "" {
		t.Error("the input changed")
	}
}
