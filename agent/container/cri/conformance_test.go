package cri_test

import (
	"log/slog"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/tinylet/tinylet/agent/container/conformance"
	"github.com/tinylet/tinylet/agent/container/cri"
	"github.com/tinylet/tinylet/agent/container/fake"
)

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
//	TINYLET_CRI_ENDPOINT  its socket
//	TINYLET_CRI_IMAGE     a present image with BusyBox
//	TINYLET_CRI_SPARE     a present image that may be removed, if there is one
//	TINYLET_CRI_PATIENCE  how long a step may take on this machine, such as 60s
//	TINYLET_CRI_LOGS      a folder for the logs, /var/log/pods by default
//	TINYLET_CRI_RESTART   a program that restarts the runtime, with arguments
func TestConformanceOverRuntime(t *testing.T) {
	endpoint, image := os.Getenv("TINYLET_CRI_ENDPOINT"), os.Getenv("TINYLET_CRI_IMAGE")
	if endpoint == "" || image == "" {
		t.Skip("TINYLET_CRI_ENDPOINT and TINYLET_CRI_IMAGE name no runtime to test")
	}
	patience := time.Minute
	if s := os.Getenv("TINYLET_CRI_PATIENCE"); s != "" {
		d, err := time.ParseDuration(s)
		if err != nil {
			t.Fatal(err)
		}
		patience = d
	}
	logs := os.Getenv("TINYLET_CRI_LOGS")
	if logs == "" {
		logs = "/var/log/pods"
	}
	conformance.Run(t, func(t *testing.T) conformance.Env {
		env := conformance.Env{
			Runtime:   newDriver(t, cri.Config{RuntimeEndpoint: endpoint}),
			Image:     image,
			Absent:    "localhost/absent:1",
			Removable: os.Getenv("TINYLET_CRI_SPARE"),
			LogRoot:   logs,
			Timeout:   patience,
		}
		if argv := strings.Fields(os.Getenv("TINYLET_CRI_RESTART")); len(argv) > 0 {
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
