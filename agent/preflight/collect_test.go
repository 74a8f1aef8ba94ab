package preflight

import (
	"bytes"
	"compress/gzip"
	"context"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// files creates a tree with the files.
func files(t *testing.T, contents map[string]string) tree {
	t.Helper()
	root := t.TempDir()
	for name, content := range contents {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return tree(root)
}

func TestCgroupMounts(t *testing.T) {
	tests := []struct {
		name   string
		mounts string
		want   Cgroup
	}{
		{"none", "proc /proc proc rw 0 0\n", Cgroup{}},
		{"unified", "cgroup2 /sys/fs/cgroup cgroup2 rw,nosuid 0 0\n", Cgroup{Kind: CgroupUnified}},
		{"elsewhere", "cgroup2 /mnt cgroup2 rw 0 0\n", Cgroup{}},
		{
			"hybrid", "tmpfs /sys/fs/cgroup tmpfs rw 0 0\ncgroup2 /sys/fs/cgroup/unified cgroup2 rw 0 0\ncgroup /sys/fs/cgroup/cpu cgroup rw,cpu,cpuacct 0 0\ncgroup /sys/fs/cgroup/io cgroup rw,blkio 0 0\n",
			Cgroup{Kind: CgroupHybrid, InV1: []string{"cpu", "io"}},
		},
		{"version 1", "cgroup /sys/fs/cgroup/memory cgroup rw,memory 0 0\n", Cgroup{Kind: CgroupV1, InV1: []string{"memory"}}},
		{"garbage", "x\n\x00\n a b\n", Cgroup{}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := files(t, map[string]string{"proc/mounts": tt.mounts}).cgroup()
			tt.want.Controllers = []string{}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("cgroup (-want +got):\n%s", diff)
			}
		})
	}
}

func TestKernelFeatures(t *testing.T) {
	var config bytes.Buffer
	z := gzip.NewWriter(&config)
	if _, err := z.Write([]byte("# CONFIG_MEMCG is not set\nCONFIG_VETH=m\nCONFIG_BRIDGE=y\nCONFIG_OTHER=y\n")); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	const release = "6.1.0"
	tests := []struct {
		name  string
		files map[string]string
		want  map[string]Tristate
	}{
		{"nothing known", map[string]string{}, map[string]Tristate{"overlay": Unknown, "veth": Unknown, "bridge": Unknown, "nf_tables": Unknown}},
		{
			"configuration alone", map[string]string{"proc/config.gz": config.String()},
			map[string]Tristate{"overlay": No, "veth": No, "bridge": Yes, "nf_tables": No},
		},
		{
			"configuration on the boot partition", map[string]string{"boot/config-" + release: "CONFIG_NF_TABLES=y\n"},
			map[string]Tristate{"overlay": No, "veth": No, "bridge": No, "nf_tables": Yes},
		},
		{
			"modules",
			map[string]string{
				"lib/modules/" + release + "/modules.builtin": "kernel/net/bridge/bridge.ko\n",
				"lib/modules/" + release + "/modules.dep":     "kernel/drivers/net/veth.ko.xz:\nkernel/net/netfilter/nf-tables.ko: kernel/lib/libcrc32c.ko\nkernel/fs/overlayfs.ko:\n",
			},
			map[string]Tristate{"overlay": No, "veth": Yes, "bridge": Yes, "nf_tables": Yes},
		},
		{
			"loaded, and in /proc/filesystems", map[string]string{"sys/module/veth/refcnt": "0\n", "proc/filesystems": "nodev\tproc\nnodev\toverlay\n"},
			map[string]Tristate{"overlay": Yes, "veth": Yes, "bridge": Unknown, "nf_tables": Unknown},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			tt.files["proc/sys/kernel/osrelease"] = release + "\n"
			got := files(t, tt.files).kernel()
			for name := range got.Modules {
				if _, wanted := tt.want[name]; !wanted {
					delete(got.Modules, name)
				}
			}
			if diff := cmp.Diff(tt.want, got.Modules); diff != "" {
				t.Errorf("modules (-want +got):\n%s", diff)
			}
		})
	}
}

func TestReleaseIsNoPath(t *testing.T) {
	k := files(t, map[string]string{"proc/sys/kernel/osrelease": "../../etc", "etc/modules.dep": "kernel/veth.ko:\n"}).kernel()
	if k.Modules["veth"] != Unknown {
		t.Error("the kernel's release was followed as a path")
	}
}

func TestMemoryInfo(t *testing.T) {
	got := files(t, map[string]string{"proc/meminfo": "MemTotal:  4096 kB\nMemAvailable: 1024 kB\nSwapTotal: x kB\nHugePages\n"}).memory()
	if want := (Memory{Total: 4 << 20, Available: 1 << 20}); got != want {
		t.Errorf("memory %+v, want %+v", got, want)
	}
}

// The agent counts the memory of a container that has its own cgroup namespace in the same
// way.
func TestMemoryOfContainer(t *testing.T) {
	got := files(t, map[string]string{
		"proc/meminfo": "MemTotal: 4096 kB\nMemAvailable: 3072 kB\n", "sys/fs/cgroup/memory.max": "2097152\n", "sys/fs/cgroup/memory.current": "1048576\n",
	}).memory()
	if want := (Memory{Total: 2 << 20, Available: 1 << 20}); got != want {
		t.Errorf("memory %+v, want %+v", got, want)
	}
}

func TestSharedRoot(t *testing.T) {
	for line, want := range map[string]Tristate{
		"":                                    Unknown,
		"25 1 8:1 / / rw shared:1 - ext4 a r": Yes,
		"25 1 8:1 / / rw - ext4 a rw":         No,
		"25 1 8:1 / / rw master:2 - ext4 shared:1 rw": No,
		"25 1 8:1 / /a rw shared:1 - ext4 a rw":       Unknown,
	} {
		if got := files(t, map[string]string{"proc/self/mountinfo": line + "\n"}).sharedRoot(); got != want {
			t.Errorf("%q: %v, want %v", line, got, want)
		}
	}
}

func TestDirectoriesNearestExisting(t *testing.T) {
	root := files(t, map[string]string{"var/lib/x": ""})
	o := Options{RootDir: "/var/lib/kubelet", LogDir: "/log/pods", RunDir: "/"}
	want := map[string]string{"pods": "/var/lib", "images": "/var/lib", "logs": "/", "run": "/"}
	for _, f := range root.directories(&o) {
		if f.ExistingPath != want[f.ID] || !f.Writable || f.Total == 0 || f.Free > f.Total {
			t.Errorf("directory %+v", f)
		}
	}
}

func TestCollectConfig(t *testing.T) {
	f := Collect(t.Context(), Options{
		Root: t.TempDir(), Endpoint: "unix:///nowhere", Input: Input{NodeName: "n", Config: Config{File: "/c", Warnings: []string{"w"}, Err: "e"}},
	})
	if diff := cmp.Diff(Config{File: "/c", Warnings: []string{"w"}, Err: "e"}, f.Config); diff != "" {
		t.Errorf("config (-want +got):\n%s", diff)
	}
	if f.NodeName != "n" || f.Now.IsZero() {
		t.Errorf("name %q, now %v", f.NodeName, f.Now)
	}
}

// fakeRuntime returns preset responses.
type fakeRuntime struct {
	runtimeapi.UnimplementedRuntimeServiceServer
	hang   bool
	err    error
	driver *runtimeapi.RuntimeConfigResponse
}

func (f *fakeRuntime) Version(ctx context.Context, _ *runtimeapi.VersionRequest) (*runtimeapi.VersionResponse, error) {
	if f.hang {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return &runtimeapi.VersionResponse{RuntimeName: "containerd", RuntimeVersion: "2.0.1"}, f.err
}

func (f *fakeRuntime) Status(context.Context, *runtimeapi.StatusRequest) (*runtimeapi.StatusResponse, error) {
	return &runtimeapi.StatusResponse{Status: &runtimeapi.RuntimeStatus{Conditions: []*runtimeapi.RuntimeCondition{
		{Type: runtimeapi.RuntimeReady, Status: true},
		{Type: runtimeapi.NetworkReady, Reason: "R", Message: "m"},
	}}}, nil
}

func (f *fakeRuntime) RuntimeConfig(context.Context, *runtimeapi.RuntimeConfigRequest) (*runtimeapi.RuntimeConfigResponse, error) {
	if f.driver == nil {
		return nil, status.Error(codes.Unimplemented, "unknown method")
	}
	return f.driver, nil
}

func TestAskRuntime(t *testing.T) {
	answer := Runtime{Name: "containerd", Version: "2.0.1", Ready: &Condition{True: true}, NetworkReady: &Condition{Reason: "R", Message: "m"}}
	withDriver := answer
	withDriver.CgroupDriver = "cgroupfs"
	tests := []struct {
		name string
		fake *fakeRuntime
		want Runtime
	}{
		{"old", &fakeRuntime{}, answer},
		{"with its driver", &fakeRuntime{driver: &runtimeapi.RuntimeConfigResponse{Linux: &runtimeapi.LinuxRuntimeConfiguration{CgroupDriver: runtimeapi.CgroupDriver_CGROUPFS}}}, withDriver},
		{"no CRI", &fakeRuntime{err: status.Error(codes.Unimplemented, "unknown service")}, Runtime{Kind: Broken, Err: "unknown service"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			endpoint := serve(t, tt.fake)
			tt.want.Endpoint = endpoint
			if diff := cmp.Diff(tt.want, queryRuntime(t.Context(), endpoint, noSandbox)); diff != "" {
				t.Errorf("runtime (-want +got):\n%s", diff)
			}
		})
	}
}

func serve(t *testing.T, fake *fakeRuntime) (endpoint string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "r.sock")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	srv := grpc.NewServer()
	runtimeapi.RegisterRuntimeServiceServer(srv, fake)
	go srv.Serve(l)
	t.Cleanup(srv.Stop)
	return "unix://" + path
}

func TestAskRuntimeThatDoesNotAnswer(t *testing.T) {
	dir := t.TempDir()
	stale := filepath.Join(dir, "stale.sock")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: stale, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	l.Close()
	plain := filepath.Join(dir, "plain")
	if err := os.WriteFile(plain, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	mute, err := net.Listen("unix", filepath.Join(dir, "mute.sock"))
	if err != nil {
		t.Fatal(err)
	}
	defer mute.Close()
	tests := []struct {
		name, endpoint string
		want           RuntimeFailure
	}{
		{"no socket", "unix://" + dir + "/none.sock", NoSocket},
		{"nobody listens", "unix://" + stale, StaleSocket},
		{"takes connections only", "unix://" + mute.Addr().String(), NoResponse},
		{"takes calls only", serve(t, &fakeRuntime{hang: true}), NoResponse},
		{"not a socket of this node", "tcp://127.0.0.1:1", BadAddress},
		{"not a socket", "unix://" + plain, StaleSocket},
		{"below a file", "unix://" + plain + "/r.sock", BadAddress},
		{"a path without a scheme", dir + "/none.sock", NoSocket},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
			defer cancel()
			if got := queryRuntime(ctx, tt.endpoint, noSandbox); got.Kind != tt.want || got.Err == "" {
				t.Errorf("runtime %+v, want kind %v", got, tt.want)
			}
		})
	}
}

func FuzzTree(f *testing.F) {
	f.Add("cgroup2 /sys/fs/cgroup cgroup2 rw 0 0", "25 1 8:1 / / rw shared:1 - ext4 a r", "MemTotal: 1 kB", "CONFIG_VETH=m")
	f.Add("\x00", "a b c d / f -", "MemTotal: 99999999999999999999", "=")
	f.Fuzz(func(t *testing.T, mounts, mountinfo, meminfo, config string) {
		root := files(t, map[string]string{
			"proc/mounts": mounts, "proc/self/mountinfo": mountinfo, "proc/meminfo": meminfo, "proc/config.gz": config,
			"proc/cgroups": mounts, "proc/filesystems": meminfo, "proc/sys/kernel/osrelease": mounts, "boot/config-6.1": config,
		})
		facts := Facts{Kernel: root.kernel(), Cgroup: root.cgroup(), Memory: root.memory(), SharedMount: root.sharedRoot()}
		for _, finding := range Evaluate(facts) {
			if finding.Level != OK && finding.Remedy == "" {
				t.Errorf("no remedy: %+v", finding)
			}
		}
		for option := range parseKernelConfig([]byte(config)) {
			if !strings.HasPrefix(option, "CONFIG_") {
				t.Errorf("option %q", option)
			}
		}
	})
}

// noSandbox returns no image.
func noSandbox(string, string) string { return "" }

func TestSandboxImage(t *testing.T) {
	const file, imported = "etc/containerd/config.toml", "etc/containerd/conf.d/10-a.toml"
	for _, tt := range []struct {
		name, runtime, version string
		files                  map[string]string
		want                   string
	}{
		{name: "another runtime", runtime: "cri-o", version: "1.34.0"},
		{name: "containerd 1.7", runtime: "containerd", version: "1.7.24~ds1", want: "registry.k8s.io/pause:3.8"},
		{name: "containerd 2.0", runtime: "containerd", version: "2.0.11", want: "registry.k8s.io/pause:3.10"},
		{name: "containerd 2.2", runtime: "containerd", version: "v2.2.1", want: "registry.k8s.io/pause:3.10.1"},
		{name: "containerd 2.4", runtime: "containerd", version: "v2.4.2", want: "registry.k8s.io/pause:3.10.2"},
		{name: "containerd 3", runtime: "containerd", version: "v3.0.0", want: "registry.k8s.io/pause:3.10.2"},
		{name: "another version", runtime: "containerd", version: "custom"},
		{name: "version 3 of the file", runtime: "containerd", version: "v2.4.2", files: map[string]string{file: "version = 3\n[plugins]\n  [plugins.'io.containerd.cri.v1.images'.pinned_images]\n    sandbox = \"localhost/pause:1\"\n"}, want: "localhost/pause:1"},
		{name: "version 2 of the file", runtime: "containerd", version: "v2.0.0", files: map[string]string{file: "  sandbox_image='r/p:1' # ours\n"}, want: "r/p:1"},
		{name: "an import", runtime: "containerd", version: "v2.4.2", files: map[string]string{file: `sandbox = "a"`, imported: `sandbox = "b"`}, want: "b"},
		{name: "a comment and another key", runtime: "custom", version: "1", files: map[string]string{file: "#sandbox = \"a\"\nsandboxer = \"b\"\nsandbox = c\n"}},
		{name: "only a comment", runtime: "containerd", version: "v2.4.2", files: map[string]string{file: "#sandbox = \"a\"\nsandbox = \"open\n"}, want: "registry.k8s.io/pause:3.10.2"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := files(t, tt.files).sandboxImage(tt.runtime, tt.version); got != tt.want {
				t.Errorf("%q, want %q", got, tt.want)
			}
		})
	}
}
