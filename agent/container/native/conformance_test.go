package native

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/containerd/containerd/v2/client"
	"github.com/containerd/platforms"
	"golang.org/x/sys/unix"

	"github.com/tinylet/tinylet/agent/container"
	"github.com/tinylet/tinylet/agent/container/conformance"
	"github.com/tinylet/tinylet/agent/container/containerd"
	"github.com/tinylet/tinylet/agent/container/cri"
	"github.com/tinylet/tinylet/agent/container/native/keeper"
	"github.com/tinylet/tinylet/agent/container/native/oci"
	"github.com/tinylet/tinylet/agent/container/native/spec"
	"github.com/tinylet/tinylet/agent/container/native/store"
	"github.com/tinylet/tinylet/cgroups"
	"github.com/tinylet/tinylet/net/cni"
	"github.com/tinylet/tinylet/net/ipam"
)

// The test binary is also the keeper.
func TestMain(m *testing.M) {
	if filepath.Base(os.Args[0]) == keeper.Name {
		os.Exit(keeper.Main(os.Args[1:], "test", os.Stderr))
	}
	os.Exit(m.Run())
}

// TestConformance runs the suite with a real containerd and a real OCI runtime:
//
//	TINYLET_RUNTIME_ENDPOINT  containerd's socket
//	TINYLET_RUNTIME_PROGRAM   the OCI runtime, crun by default
//	TINYLET_RUNTIME_IMAGE     a present image with BusyBox
//	TINYLET_RUNTIME_SPARE     a present image that may be removed, if there is one
//	TINYLET_RUNTIME_CONFIGURED  conformance.Features.Configured
//	TINYLET_RUNTIME_PATIENCE  how long a step may take on this machine, such as 60s
//	TINYLET_RUNTIME_RESTART   a program that restarts containerd, with arguments
//	TINYLET_RUNTIME_CGROUP    the parent of the pods' cgroups; a slice makes scopes of systemd
//	TINYLET_RUNTIME_CNI       set if the plugins of /etc/cni/net.d are to connect sandboxes
//	TINYLET_RUNTIME_SERVED    set if the driver is to be called over CRI
func TestConformance(t *testing.T) {
	e := newEnv(t)
	conformance.Run(t, func(t *testing.T) conformance.Env {
		env := conformance.Env{
			Runtime: e.runtime(t), Image: e.image, Absent: "localhost/absent:1", Removable: os.Getenv("TINYLET_RUNTIME_SPARE"),
			LogRoot: "/var/log/pods", CgroupParent: cmp.Or(os.Getenv("TINYLET_RUNTIME_CGROUP"), "/conformance"), Timeout: e.patience, OwnEvents: true,
			Features: &conformance.Features{PodNetwork: true, Configured: os.Getenv("TINYLET_RUNTIME_CONFIGURED"), ImageVolumes: true},
		}
		if argv := strings.Fields(os.Getenv("TINYLET_RUNTIME_RESTART")); len(argv) > 0 {
			env.Restart = func(t *testing.T) {
				t.Helper()
				if out, err := exec.CommandContext(t.Context(), argv[0], argv[1:]...).CombinedOutput(); err != nil {
					t.Fatalf("%v: %v\n%s", argv, err, out)
				}
			}
		}
		return env
	})
}

// runtime returns a driver, or one of CRI on top of it.
func (e *testEnv) runtime(t *testing.T) container.Runtime {
	t.Helper()
	d := e.newDriver(t)
	if os.Getenv("TINYLET_RUNTIME_SERVED") == "" {
		return d
	}
	over, err := cri.New(cri.Config{RuntimeEndpoint: conformance.Serve(t, d).Endpoint, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := over.Close(); err != nil {
			t.Error(err)
		}
	})
	return over
}

// testEnv is where drivers run.
type testEnv struct {
	socket, image string // containerd's, and one of BusyBox
	dir, volumes  string
	program       oci.Program
	keeper        keeper.Client
	patience      time.Duration
	hostDir       string // with hosts.toml
	received      func(int)
}

// newEnv starts a keeper. It skips the test without a containerd.
func newEnv(t *testing.T) *testEnv {
	t.Helper()
	socket, image := os.Getenv("TINYLET_RUNTIME_ENDPOINT"), os.Getenv("TINYLET_RUNTIME_IMAGE")
	if socket == "" || image == "" {
		t.Skip("TINYLET_RUNTIME_ENDPOINT and TINYLET_RUNTIME_IMAGE name no containerd to test with")
	}
	program, err := exec.LookPath(cmp.Or(os.Getenv("TINYLET_RUNTIME_PROGRAM"), "crun"))
	if err != nil {
		t.Fatal(err)
	}
	patience, err := time.ParseDuration(cmp.Or(os.Getenv("TINYLET_RUNTIME_PATIENCE"), "1m"))
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("/run", "native-")
	if err != nil {
		t.Fatal(err)
	}
	volumes, err := os.MkdirTemp("/var/lib", "native-")
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.Chmod(dir, 0o711), os.Chmod(volumes, 0o711)); err != nil {
		t.Fatal(err)
	}
	return &testEnv{
		volumes: volumes, socket: strings.TrimPrefix(socket, "unix://"), image: image, dir: dir, program: oci.Program{program, "--root=" + filepath.Join(dir, "oci")},
		keeper: startKeeper(t, filepath.Join(dir, "keeper")), patience: patience,
	}
}

// startKeeper keeps a keeper running until the test ends.
func startKeeper(t *testing.T, dir string) keeper.Client {
	t.Helper()
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	s := &keeper.Supervisor{Client: keeper.Client{Dir: dir}, Program: program, Build: "test", Stderr: os.Stderr, Log: slog.New(slog.NewTextHandler(os.Stderr, nil))}
	ctx, cancel := context.WithCancel(context.Background())
	running, done := make(chan struct{}, 100), make(chan struct{})
	go func() {
		defer close(done)
		s.Run(ctx, func() { running <- struct{}{} })
	}()
	t.Cleanup(func() {
		hello, err := s.Hello(context.Background())
		cancel()
		<-done
		if err != nil {
			t.Error(err)
			return
		}
		_ = unix.Kill(hello.PID, unix.SIGKILL)
	})
	<-running
	return s.Client
}

// network is the configuration of the pods' network.
func (e *testEnv) network() (cni.Config, error) {
	c := cni.Default()
	c.Name, c.StateDir = "suite", filepath.Join(e.dir, "network")
	c.Ranges = []ipam.Range{{Prefix: netip.MustParsePrefix("10.98.0.0/24")}}
	return c, nil
}

// newDriver starts a driver, which ends with the test.
func (e *testEnv) newDriver(t *testing.T) *Driver {
	t.Helper()
	c, err := client.New(e.socket, client.WithDefaultNamespace(store.Namespace), client.WithDefaultPlatform(platforms.Default()))
	if err != nil {
		t.Fatal(err)
	}
	unpacker, err := containerd.New("unix://" + e.socket)
	if err != nil {
		t.Fatal(err)
	}
	tree, err := cgroups.Open("/sys/fs/cgroup")
	if err != nil {
		t.Fatal(err)
	}
	node, err := NodeFacts()
	if err != nil {
		t.Fatal(err)
	}
	handler, err := NewHandler(t.Context(), e.program)
	if err != nil {
		t.Fatal(err)
	}
	poller, err := tree.NewPoller()
	if err != nil {
		t.Fatal(err)
	}
	polls := make(chan error, 1)
	pollCtx, stopPolls := context.WithCancel(context.Background())
	go func() { polls <- poller.Run(pollCtx) }()
	t.Cleanup(func() {
		stopPolls()
		if err := <-polls; err != nil {
			t.Error(err)
		}
	})
	network := Network(PodNetwork{Config: e.network})
	if os.Getenv("TINYLET_RUNTIME_CNI") != "" {
		network = &PluginNetwork{ConfDir: "/etc/cni/net.d", PluginDirs: []string{"/opt/cni/bin"}, CacheDir: filepath.Join(e.volumes, "cni")}
	}
	d, err := New(t.Context(), Config{
		Store: store.New(c, "overlayfs", platforms.Default(), unpacker.Store), Keeper: e.keeper,
		Handlers: map[string]Handler{"": handler}, Dir: filepath.Join(e.dir, "driver"), VolumeDir: e.volumes, NetNS: "/run/netns", Network: network, Node: node, HostDirs: []string{e.hostDir}, Received: e.received, Cgroups: tree, Poller: poller, Systemd: spec.IsSlice(os.Getenv("TINYLET_RUNTIME_CGROUP")),
		Log: slog.New(slog.NewTextHandler(t.Output(), nil)),
	})
	if err != nil {
		t.Fatal(err)
	}
	s, err := d.NewSessions(filepath.Join(e.dir, "sessions.sock"))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 2)
	go func() { done <- d.Run(ctx) }()
	go func() { done <- s.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		for range 2 {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
		_ = unpacker.Close()
		_ = c.Close()
	})
	return d
}
