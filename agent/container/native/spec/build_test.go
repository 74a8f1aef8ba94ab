package spec

import (
	"errors"
	"io/fs"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/moby/sys/mountinfo"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/opencontainers/runtime-spec/specs-go"
	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

const passwd = `root:x:0:0:root:/root:/bin/sh
app:x:1000:1001:App:/home/app:/bin/sh
twin:x:1000:1999::/:
`

const group = `# comment:x:77:app
root:x:0:
app:x:1001:app
audio:x:29:app,other
video:x:44:other,app
staff:x:50:other,
wheel:x:10:root
`

// node has one mount of each propagation, and a board's devices.
func node() *Node {
	return &Node{
		Hostname:       "board",
		Capabilities:   []string{"CAP_CHOWN", "CAP_SYS_ADMIN", "CAP_BPF"},
		SwapAccounting: true,
		HugeTLB:        true,
		Seccomp:        true,
		HostPath: func(path string) (string, error) {
			if path == "/denied" {
				return "", fs.ErrPermission
			}
			return strings.Replace(path, "/link", "/real", 1), nil
		},
		MountOf: func(path string) (*mountinfo.Info, error) {
			switch {
			case path == cgroupRoot:
				return &mountinfo.Info{Mountpoint: path, VFSOptions: "rw,nsdelegate,memory_recursiveprot,memory_localevents"}, nil
			case strings.HasPrefix(path, "/shared"):
				return &mountinfo.Info{Mountpoint: "/shared", Optional: "shared:1"}, nil
			case strings.HasPrefix(path, "/slave"):
				return &mountinfo.Info{Mountpoint: "/slave", Optional: "master:1 propagate_from:2"}, nil
			case strings.HasPrefix(path, "/gone"):
				return nil, fs.ErrNotExist
			}
			return &mountinfo.Info{Mountpoint: "/"}, nil
		},
		Devices: func(path string) (string, []specs.LinuxDevice, error) {
			switch path {
			case "/dev":
				return path, []specs.LinuxDevice{
					device("/dev/null", "c", 1, 3), device("/dev/console", "c", 5, 1), device("/dev/pts/0", "c", 136, 0),
					device("/dev/initctl", "p", 0, 0), device("/dev/snd/pcm", "c", 116, 2), device("/dev/mmcblk0", "b", 179, 0),
				}, nil
			case "/dev/gpio": // a link
				return "/dev/gpiochip0", []specs.LinuxDevice{device("/dev/gpiochip0", "c", 254, 0)}, nil
			case "/dev/fifo":
				return path, []specs.LinuxDevice{device(path, "p", 0, 0)}, nil
			}
			return "", nil, fs.ErrNotExist
		},
		DefaultSeccomp: func(s *specs.Spec) *specs.LinuxSeccomp {
			return &specs.LinuxSeccomp{DefaultAction: specs.ActErrno, ListenerMetadata: strings.Join(s.Process.Capabilities.Bounding, ",")}
		},
		ReadSeccomp: func(path string) ([]byte, error) {
			switch path {
			case "/profiles/audit.json":
				return []byte(`{"defaultAction": "SCMP_ACT_LOG"}`), nil
			case "/profiles/bad.json":
				return []byte(`[]`), nil
			}
			return nil, fs.ErrNotExist
		},
		AppArmorLoaded: func(name string) (bool, error) {
			if name == "broken" {
				return false, fs.ErrPermission
			}
			return name == defaultAppArmor || name == "own", nil
		},
	}
}

func device(path, kind string, major, minor int64) specs.LinuxDevice {
	mode, uid, gid := os.FileMode(0o660), uint32(7), uint32(8)
	return specs.LinuxDevice{Path: path, Type: kind, Major: major, Minor: minor, FileMode: &mode, UID: &uid, GID: &gid}
}

// simple is a container of a pod with its own namespaces.
func simple(t testing.TB) *Container {
	t.Helper()
	users, err := ParseUsers(strings.NewReader(passwd), strings.NewReader(group))
	if err != nil {
		t.Fatal(err)
	}
	options := func() *runtimeapi.NamespaceOption {
		return &runtimeapi.NamespaceOption{Pid: runtimeapi.NamespaceMode_CONTAINER}
	}
	return &Container{
		ID: "c1", SandboxID: "s1",
		Config: &runtimeapi.ContainerConfig{
			Metadata: &runtimeapi.ContainerMetadata{Name: "web"},
			Image:    &runtimeapi.ImageSpec{Image: "sha256:feed"},
			Command:  []string{"/bin/web"},
			Linux: &runtimeapi.LinuxContainerConfig{
				Resources:       &runtimeapi.LinuxContainerResources{},
				SecurityContext: &runtimeapi.LinuxContainerSecurityContext{NamespaceOptions: options()},
			},
		},
		Sandbox: &runtimeapi.PodSandboxConfig{
			Metadata: &runtimeapi.PodSandboxMetadata{Name: "pod", Namespace: "default", Uid: "u1"},
			Hostname: "pod",
			Linux: &runtimeapi.LinuxPodSandboxConfig{
				CgroupParent:    "/kubepods/podu1",
				SecurityContext: &runtimeapi.LinuxSandboxSecurityContext{NamespaceOptions: options()},
			},
		},
		Image:     &ocispec.ImageConfig{},
		ImageName: "example.com/web:1",
		Users:     users,
		Namespaces: Namespaces{
			Network: "/run/netns/s1", IPC: "/pins/s1/ipc", UTS: "/pins/s1/uts", User: "/pins/s1/user", PID: "/pins/s1/pid",
		},
		Files: Files{Hostname: "/pins/s1/hostname", Hosts: "/pins/s1/hosts", ResolvConf: "/pins/s1/resolv.conf", Shm: "/pins/s1/shm"},
		Handler: Handler{
			RecursiveReadOnly: true, IDMapMounts: true,
		},
		Node: node(),
	}
}

// row is one rule: what the change of the simple container makes of a part of its spec.
type row struct {
	name   string
	change func(*Container)
	part   func(*specs.Spec) any
	want   any
	err    string // part of the error
}

func run(t *testing.T, rows []row) {
	t.Helper()
	for _, r := range rows {
		t.Run(r.name, func(t *testing.T) {
			c := simple(t)
			if r.change != nil {
				r.change(c)
			}
			before := proto.Clone(c.Config)
			got, err := Build(c)
			if r.err != "" {
				if err == nil || !strings.Contains(err.Error(), r.err) || !strings.Contains(err.Error(), "build OCI spec of container") {
					t.Fatalf("error %v, want one with %q", err, r.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(r.want, r.part(got)); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
			if !proto.Equal(before, c.Config) {
				t.Error("the config was modified")
			}
		})
	}
}

func security(c *Container) *runtimeapi.LinuxContainerSecurityContext {
	return c.Config.Linux.SecurityContext
}

func privileged(c *Container) {
	security(c).Privileged = true
	c.Sandbox.Linux.SecurityContext.Privileged = true
}

func TestInput(t *testing.T) {
	run(t, []row{
		{name: "no ID", change: func(c *Container) { c.ID = "" }, err: "container ID"},
		{name: "ID with slash", change: func(c *Container) { c.ID = "../x" }, err: "container ID"},
		{name: "no config", change: func(c *Container) { c.Config = nil }, err: "container config has no metadata"},
		{name: "no metadata", change: func(c *Container) { c.Config.Metadata = nil }, err: "container config has no metadata"},
		{name: "no sandbox", change: func(c *Container) { c.Sandbox.Metadata = nil }, err: "sandbox config has no metadata"},
		{name: "no image", change: func(c *Container) { c.Image = nil }, err: "image config"},
		{name: "no node", change: func(c *Container) { c.Node = nil }, err: "facts of the node"},
		{name: "no HostPath", change: func(c *Container) { c.Node.HostPath = nil }, err: "facts of the node"},
		{name: "no MountOf", change: func(c *Container) { c.Node.MountOf = nil }, err: "facts of the node"},
		{name: "no Devices", change: func(c *Container) { c.Node.Devices = nil }, err: "facts of the node"},
		{name: "no DefaultSeccomp", change: func(c *Container) { c.Node.DefaultSeccomp = nil }, err: "facts of the node"},
		{name: "no ReadSeccomp", change: func(c *Container) { c.Node.ReadSeccomp = nil }, err: "facts of the node"},
		{name: "no AppArmorLoaded", change: func(c *Container) { c.Node.AppArmorLoaded = nil }, err: "facts of the node"},
		{name: "stop signal", change: func(c *Container) { c.Config.StopSignal = 4711 }, err: "stop_signal 4711"},
	})
}

// TestBase has the rules of items without a field in the configs: the spec has no rlimits, no
// hostname, a relative root, and denies devices.
func TestBase(t *testing.T) {
	s, err := Build(simple(t))
	if err != nil {
		t.Fatal(err)
	}
	if s.Version != specs.Version || s.Hostname != "" || s.Process.Rlimits != nil || s.Linux.Seccomp != nil || s.Process.ApparmorProfile != "" {
		t.Errorf("version %q, hostname %q, rlimits %v, seccomp %v, apparmor %q", s.Version, s.Hostname, s.Process.Rlimits, s.Linux.Seccomp, s.Process.ApparmorProfile)
	}
	if diff := cmp.Diff(&specs.Root{Path: "rootfs"}, s.Root); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]specs.LinuxDeviceCgroup{{Allow: false, Access: "rwm"}}, s.Linux.Resources.Devices); diff != "" {
		t.Error(diff)
	}
	for _, m := range s.Mounts {
		if m.Destination == "/run" {
			t.Error("/run is mounted")
		}
	}
}

func TestProcess(t *testing.T) {
	args := func(s *specs.Spec) any { return s.Process.Args }
	image := func(c *Container) { c.Image.Entrypoint, c.Image.Cmd = []string{"/entry"}, []string{"cmd"} }
	run(t, []row{
		{name: "command replaces entrypoint and cmd", change: image, part: args, want: []string{"/bin/web"}},
		{name: "command and args", change: func(c *Container) { image(c); c.Config.Args = []string{"a"} }, part: args, want: []string{"/bin/web", "a"}},
		{name: "entrypoint and cmd", change: func(c *Container) { image(c); c.Config.Command = nil }, part: args, want: []string{"/entry", "cmd"}},
		{name: "args replace cmd", change: func(c *Container) {
			image(c)
			c.Config.Command, c.Config.Args = nil, []string{"a"}
		}, part: args, want: []string{"/entry", "a"}},
		{name: "empty command is none", change: func(c *Container) { image(c); c.Config.Command = []string{} }, part: args, want: []string{"/entry", "cmd"}},
		{name: "entrypoint of one empty string", change: func(c *Container) {
			image(c)
			c.Config.Command, c.Image.Entrypoint = nil, []string{""}
		}, part: args, want: []string{"cmd"}},
		{name: "nothing", change: func(c *Container) { c.Config.Command = nil }, err: "no command specified"},
		{name: "cwd default", part: func(s *specs.Spec) any { return s.Process.Cwd }, want: "/"},
		{name: "cwd of image", change: func(c *Container) { c.Image.WorkingDir = "/srv" }, part: func(s *specs.Spec) any { return s.Process.Cwd }, want: "/srv"},
		{name: "cwd of config", change: func(c *Container) {
			c.Image.WorkingDir, c.Config.WorkingDir = "/srv", "/own"
		}, part: func(s *specs.Spec) any { return s.Process.Cwd }, want: "/own"},
		{name: "tty", change: func(c *Container) { c.Config.Tty = true }, part: func(s *specs.Spec) any { return s.Process.Terminal }, want: true},
		{name: "no tty", part: func(s *specs.Spec) any { return s.Process.Terminal }, want: false},
		{name: "no_new_privs", change: func(c *Container) { security(c).NoNewPrivs = true }, part: func(s *specs.Spec) any { return s.Process.NoNewPrivileges }, want: true},
		{name: "new privileges", part: func(s *specs.Spec) any { return s.Process.NoNewPrivileges }, want: false},
		{name: "read-only root", change: func(c *Container) { security(c).ReadonlyRootfs = true }, part: func(s *specs.Spec) any { return s.Root.Readonly }, want: true},
		{name: "OOM score", change: func(c *Container) { c.Config.Linux.Resources.OomScoreAdj = -997 }, part: func(s *specs.Spec) any { return *s.Process.OOMScoreAdj }, want: -997},
		{name: "low OOM score", change: func(c *Container) { c.Config.Linux.Resources.OomScoreAdj = -1001 }, err: "oom_score_adj: -1001 is out of range"},
		{name: "high OOM score", change: func(c *Container) { c.Config.Linux.Resources.OomScoreAdj = 1 << 32 }, err: "oom_score_adj: 4294967296 is out of range"},
		{name: "highest OOM score", change: func(c *Container) { c.Config.Linux.Resources.OomScoreAdj = 1000 }, part: func(s *specs.Spec) any { return *s.Process.OOMScoreAdj }, want: 1000},
		{name: "OOM score of no resources", change: func(c *Container) { c.Config.Linux.Resources = nil }, part: func(s *specs.Spec) any { return s.Process.OOMScoreAdj == nil }, want: true},
	})
}

func TestEnvironment(t *testing.T) {
	env := func(s *specs.Spec) any { return s.Process.Env }
	set := func(c *Container, key, value string) {
		c.Config.Envs = append(c.Config.Envs, &runtimeapi.KeyValue{Key: key, Value: []byte(value)})
	}
	run(t, []row{
		{name: "default", part: env, want: []string{defaultPath, "HOSTNAME=pod"}},
		{name: "hostname of the node", change: func(c *Container) { c.Sandbox.Hostname = "" }, part: env, want: []string{defaultPath, "HOSTNAME=board"}},
		{name: "TERM", change: func(c *Container) { c.Config.Tty = true }, part: env, want: []string{defaultPath, "TERM=xterm", "HOSTNAME=pod"}},
		{name: "order", change: func(c *Container) {
			c.Image.Env = []string{"B=1", "A=1"}
			set(c, "C", "a=b")
		}, part: env, want: []string{defaultPath, "HOSTNAME=pod", "B=1", "A=1", "C=a=b"}},
		{name: "replaced in place", change: func(c *Container) {
			c.Config.Tty = true
			c.Image.Env = []string{"PATH=/image"}
			set(c, "PATH", "/config")
			set(c, "HOSTNAME", "own")
			set(c, "TERM", "")
		}, part: env, want: []string{"PATH=/config", "TERM=", "HOSTNAME=own"}},
		{name: "in image and config", change: func(c *Container) {
			c.Image.Env = []string{"A=1"}
			set(c, "A", "2")
		}, part: env, want: []string{defaultPath, "HOSTNAME=pod", "A=1", "A=2"}},
		{name: "removed by the image", change: func(c *Container) { c.Image.Env = []string{"PATH", "OTHER"} }, part: env, want: []string{"HOSTNAME=pod"}},
		{name: "removed and set again", change: func(c *Container) {
			c.Image.Env = []string{"PATH"}
			set(c, "PATH", "/config")
		}, part: env, want: []string{"PATH=/config", "HOSTNAME=pod"}},
	})
}

func TestAnnotations(t *testing.T) {
	all := func(s *specs.Spec) any { return s.Annotations }
	want := func(image string) map[string]string {
		return map[string]string{
			"io.kubernetes.cri.container-type": "container", "io.kubernetes.cri.sandbox-id": "s1",
			"io.kubernetes.cri.sandbox-namespace": "default", "io.kubernetes.cri.sandbox-uid": "u1",
			"io.kubernetes.cri.sandbox-name": "pod", "io.kubernetes.cri.container-name": "web",
			"io.kubernetes.cri.image-name": image,
		}
	}
	run(t, []row{
		{name: "all", change: func(c *Container) { c.Config.Annotations = map[string]string{"other": "x"} }, part: all, want: want("example.com/web:1")},
		{name: "image that the user specified", change: func(c *Container) { c.Config.Image.UserSpecifiedImage = "web" }, part: all, want: want("web")},
	})
}

func TestRefusals(t *testing.T) {
	level := func(c *Container, text string) {
		security(c).SelinuxOptions = &runtimeapi.SELinuxOption{Level: text}
	}
	mounts := func(s *specs.Spec) any { return s.Linux.MountLabel + s.Process.SelinuxLabel }
	annotate := func(own bool, key, value string) func(*Container) {
		return func(c *Container) {
			if own {
				c.Config.Annotations = map[string]string{key: value}
			} else {
				c.Sandbox.Annotations = map[string]string{key: value}
			}
		}
	}
	none := func(*specs.Spec) any { return nil }
	run(t, []row{
		{name: "CDI device", change: func(c *Container) { c.Config.CDIDevices = []*runtimeapi.CDIDevice{{Name: "v.com/c=d"}} }, err: `CDI device "v.com/c=d"`},
		{name: "CDI annotation", change: annotate(true, "cdi.k8s.io/x", "v.com/c=d"), err: "cdi.k8s.io/x"},
		{name: "blockio of the container", change: annotate(true, "io.kubernetes.cri.blockio-class", "slow"), err: `blockio class "slow"`},
		{name: "blockio of the pod for the container", change: annotate(false, "blockio.resources.beta.kubernetes.io/container.web", "slow"), err: `blockio class "slow"`},
		{name: "blockio of the pod", change: annotate(false, "blockio.resources.beta.kubernetes.io/pod", "slow"), err: `blockio class "slow"`},
		{name: "blockio of another container", change: annotate(false, "blockio.resources.beta.kubernetes.io/container.other", "slow"), part: none},
		{name: "blockio turned off for the container", change: func(c *Container) {
			c.Sandbox.Annotations = map[string]string{"blockio.resources.beta.kubernetes.io/pod": "slow", "blockio.resources.beta.kubernetes.io/container.web": ""}
		}, part: none},
		{name: "RDT of the container", change: annotate(true, "io.kubernetes.cri.rdt-class", "gold"), err: `rdt class "gold"`},
		{name: "RDT of the container over the pod", change: func(c *Container) {
			c.Config.Annotations = map[string]string{"io.kubernetes.cri.rdt-class": ""}
			c.Sandbox.Annotations = map[string]string{"rdt.resources.beta.kubernetes.io/pod": "gold"}
		}, part: none},
		{name: "RDT of the pod", change: annotate(false, "rdt.resources.beta.kubernetes.io/pod", "gold"), err: `rdt class "gold"`},
		{name: "SELinux without the kernel's", change: func(c *Container) { level(c, "s0:c1.c3,c9") }, part: mounts, want: ""},
		{name: "SELinux level", change: func(c *Container) { level(c, "s0:c1;c2") }, err: "selinux_options: level"},
		{name: "SELinux of the container", change: func(c *Container) { level(c, "s0"); c.Node.SELinux = true }, err: "SELinux is not supported"},
		{name: "SELinux of the sandbox", change: func(c *Container) {
			c.Node.SELinux = true
			c.Sandbox.Linux.SecurityContext.SelinuxOptions = &runtimeapi.SELinuxOption{Type: "t"}
		}, err: "SELinux is not supported"},
		{name: "no SELinux options", change: func(c *Container) {
			c.Node.SELinux = true
			security(c).SelinuxOptions = &runtimeapi.SELinuxOption{}
		}, part: mounts, want: ""},
		{name: "privileged in a sandbox that is not", change: func(c *Container) { security(c).Privileged = true }, err: "no privileged container allowed"},
	})
}

func TestStopSignal(t *testing.T) {
	for signal, want := range map[runtimeapi.Signal]string{
		runtimeapi.Signal_SIGNAL_RUNTIME_DEFAULT: "SIGQUIT",
		runtimeapi.Signal_SIGNAL_SIGTERM:         "SIGTERM",
		runtimeapi.Signal_SIGNAL_SIGRTMINPLUS3:   "SIGRTMIN+3",
		runtimeapi.Signal_SIGNAL_SIGRTMAXMINUS14: "SIGRTMAX-14",
		runtimeapi.Signal_SIGNAL_SIGRTMIN:        "SIGRTMIN",
	} {
		got, err := StopSignal(&runtimeapi.ContainerConfig{StopSignal: signal}, &ocispec.ImageConfig{StopSignal: "SIGQUIT"})
		if got != want || err != nil {
			t.Errorf("%s: %q, %v, want %q", signal, got, err, want)
		}
	}
	if _, err := StopSignal(&runtimeapi.ContainerConfig{StopSignal: -1}, &ocispec.ImageConfig{}); err == nil {
		t.Error("signal -1 is accepted")
	}
	if got, err := StopSignal(&runtimeapi.ContainerConfig{}, &ocispec.ImageConfig{}); got != "" || err != nil {
		t.Errorf("no signal: %q, %v", got, err)
	}
}

// TestErrorsWrap checks that callers can find causes.
func TestErrorsWrap(t *testing.T) {
	c := simple(t)
	c.Config.Mounts = []*runtimeapi.Mount{{ContainerPath: "/x", HostPath: "/denied"}}
	if _, err := Build(c); !errors.Is(err, fs.ErrPermission) || !strings.Contains(err.Error(), "/denied") {
		t.Error(err)
	}
}
