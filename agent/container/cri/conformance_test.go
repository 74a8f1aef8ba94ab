package cri_test

import (
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tinylet/tinylet/agent/container/conformance"
	"github.com/tinylet/tinylet/agent/container/cri"
	"github.com/tinylet/tinylet/agent/container/fake"
	"github.com/tinylet/tinylet/net/cni"
	"github.com/tinylet/tinylet/net/cni/plugin"
)

// The test binary is also the CNI plugin of the runtime.
func TestMain(m *testing.M) {
	if filepath.Base(os.Args[0]) == cni.Type {
		os.Exit(plugin.Run(os.Getenv, os.Stdin, os.Stdout, os.Stderr))
	}
	os.Exit(m.Run())
}

func newDriver(t *testing.T, c cri.Config) *cri.Driver {
	t.Helper()
	c.Log = slog.New(slog.DiscardHandler)
	d, err := cri.New(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	return d
}

func TestConformanceOverFake(t *testing.T) {
	conformance.Run(t, func(t *testing.T) conformance.Env {
		rt := fake.New(fake.Config{WriteLogs: true})
		rt.AddImage("localhost/busybox:1", fake.Program{})
		rt.AddImage("localhost/spare:1", fake.Program{})
		stop, err := rt.ServeStreams()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(stop)
		server := conformance.Serve(t, rt)
		return conformance.Env{
			Runtime:   newDriver(t, cri.Config{RuntimeEndpoint: server.Endpoint}),
			Image:     "localhost/busybox:1",
			Absent:    "localhost/absent:1",
			Removable: "localhost/spare:1",
			LogRoot:   t.TempDir(),

			Parallel: true,
			Restart: func(t *testing.T) {
				server.Stop(t)
				rt.Restart()
				server.Start(t)
			},
		}
	})
}

// TestConformanceOverRuntime runs the suite against a real runtime:
//
//	TINYLET_RUNTIME_ENDPOINT  its socket
//	TINYLET_RUNTIME_IMAGE     a present image with BusyBox
//	TINYLET_RUNTIME_SPARE     a present image that may be removed, if there is one
//	TINYLET_RUNTIME_PATIENCE  how long a step may take on this machine, such as 60s
//	TINYLET_RUNTIME_NETWORK     set if the runtime connects pods
//	TINYLET_RUNTIME_CONFIGURED  conformance.Features.Configured, if there is one
//	TINYLET_RUNTIME_CGROUP      the parent of the pods' cgroups, a slice if the runtime uses systemd
//	TINYLET_RUNTIME_LOGS      a folder for the logs, /var/log/pods by default
//	TINYLET_RUNTIME_RESTART   a program that restarts the runtime, with arguments
func TestConformanceOverRuntime(t *testing.T) {
	endpoint, image := os.Getenv("TINYLET_RUNTIME_ENDPOINT"), os.Getenv("TINYLET_RUNTIME_IMAGE")
	if endpoint == "" || image == "" {
		t.Skip("TINYLET_RUNTIME_ENDPOINT and TINYLET_RUNTIME_IMAGE name no runtime to test")
	}
	patience := time.Minute
	if s := os.Getenv("TINYLET_RUNTIME_PATIENCE"); s != "" {
		d, err := time.ParseDuration(s)
		if err != nil {
			t.Fatal(err)
		}
		patience = d
	}
	logs := os.Getenv("TINYLET_RUNTIME_LOGS")
	if logs == "" {
		logs = "/var/log/pods"
	}
	conformance.Run(t, func(t *testing.T) conformance.Env {
		env := conformance.Env{
			Runtime:   newDriver(t, cri.Config{RuntimeEndpoint: endpoint}),
			Image:     image,
			Absent:    "localhost/absent:1",
			Removable: os.Getenv("TINYLET_RUNTIME_SPARE"),
			LogRoot:   logs, CgroupParent: os.Getenv("TINYLET_RUNTIME_CGROUP"),
			Timeout: patience,
			Features: &conformance.Features{
				PodNetwork: os.Getenv("TINYLET_RUNTIME_NETWORK") != "", Configured: os.Getenv("TINYLET_RUNTIME_CONFIGURED"),
			},
		}
		if argv := strings.Fields(os.Getenv("TINYLET_RUNTIME_RESTART")); len(argv) > 0 {
			env.Restart = func(t *testing.T) { run(t, argv) }
		}
		return env
	})
}

func run(t *testing.T, argv []string) {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), argv[0], argv[1:]...).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %v\n%s", argv, err, out)
	}
}
