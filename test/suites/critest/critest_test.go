//go:build board

package critest

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tinylet/tinylet/test/harness/board"
	"github.com/tinylet/tinylet/test/harness/board/imagetar"
	"github.com/tinylet/tinylet/test/harness/ginkgo"
)

const (
	memoryMB = 1024
	longest  = 40 * time.Minute // that a run takes
	socket   = "/run/critest.sock"
	archive  = "/var/lib/critest.tar"
	report   = "/run/critest.xml"
	served   = "/usr/lib/board/native.test"
	serverID = "/run/critest.pid"
	program  = "/usr/bin/critest"
)

// TestCritest runs all cases of critest against a board. CRITEST_FOCUS, a regular
// expression, runs only those that match it.
func TestCritest(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), longest+5*time.Minute)
	t.Cleanup(cancel)
	text, err := os.ReadFile("exceptions.yaml")
	if err != nil {
		t.Fatal(err)
	}
	exceptions, err := ParseExceptions(text)
	if err != nil {
		t.Fatal(err)
	}
	vm := start(ctx, t)
	serve(ctx, t, vm)
	focus := os.Getenv("CRITEST_FOCUS")
	v := exceptions.Judge(run(ctx, t, vm, focus), focus != "")
	for _, x := range v.Excepted {
		t.Logf("exception: %s: %s: %s", x.Outcome, x.Name, cmp.Or(x.Reason, x.Message))
	}
	t.Logf("%d passed, %d are exceptions, %d not selected, %d problems", v.Passed, len(v.Excepted), v.NotRun, len(v.Problems))
	for _, p := range v.Problems {
		t.Error(p)
	}
}

// start boots a board with the programs and the images.
func start(ctx context.Context, t *testing.T) *board.VM {
	t.Helper()
	im, err := board.Prepare(ctx, board.Options{Arch: board.ARM64, Progress: lines{t}})
	if err != nil {
		t.Fatal(err)
	}
	// Without AppArmor: its cases load profiles with sudo and apparmor_parser.
	vm, err := board.Boot(ctx, im, board.VMOptions{
		MemoryMB: memoryMB, ExtraCmdline: "apparmor=0",
		Files: []board.File{
			{Path: served, Mode: 0o755, Source: built(t, "native.test")},
			{Path: program, Mode: 0o755, Source: built(t, "critest")},
			{Path: "/usr/bin/ipcmk", Mode: 0o755, Source: built(t, "standin")},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { end(t, vm) })
	if err := errors.Join(vm.WaitBooted(ctx), vm.WaitContainerd(ctx)); err != nil {
		t.Fatal(err)
	}
	busybox, err := vm.Get(ctx, "/usr/bin/busybox")
	if err != nil {
		t.Fatal(err)
	}
	standin, err := os.ReadFile(built(t, "standin"))
	if err != nil {
		t.Fatal(err)
	}
	images, err := Images("arm64", Programs{Busybox: busybox, Standin: standin})
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := imagetar.Write(&b, images...); err != nil {
		t.Fatal(err)
	}
	size := b.Len()
	began := time.Now()
	if err := vm.Put(ctx, archive, &b, 0o644); err != nil {
		t.Fatal(err)
	}
	t.Logf("%d images, %d MB, are on the board after %.1f s", len(images), size>>20, time.Since(began).Seconds())
	return vm
}

// serve runs the driver as a CRI server until the test ends, with a registry of the
// images.
func serve(ctx context.Context, t *testing.T, vm *board.VM) {
	t.Helper()
	// The test's own context ends before its cleanup.
	running, kill := context.WithCancel(context.WithoutCancel(ctx))
	p, err := vm.Start(running, board.Cmd{
		Argv: []string{"sh", "-c", "echo $$ > " + serverID + "; exec " + served + " -test.run '^TestServe$' -test.v -test.timeout 2h"},
		Env: []string{
			"TINYLET_RUNTIME_ENDPOINT=unix:///run/containerd/containerd.sock", "TINYLET_RUNTIME_IMAGE=" + board.BusyboxImage,
			"TINYLET_RUNTIME_PATIENCE=120s", "TINYLET_RUNTIME_SERVE=" + socket, "TINYLET_RUNTIME_REGISTRY=" + archive,
		},
		Stdout: lines{t}, Stderr: lines{t},
	})
	if err != nil {
		kill()
		t.Fatal(err)
	}
	t.Cleanup(func() {
		defer kill()
		ctx, cancel := context.WithTimeout(running, time.Minute)
		defer cancel()
		if _, err := vm.Shell(ctx, "id=$(cat "+serverID+"); kill -TERM $id; while kill -0 $id 2>/dev/null; do sleep 0.2; done"); err != nil {
			t.Error(err)
			kill()
		}
		if exit, err := p.Wait(); exit != 0 || err != nil {
			t.Errorf("the server of the driver ended with exit code %d: %v", exit, err)
		}
	})
	if _, err := vm.Shell(ctx, "for i in $(seq 300); do [ -S "+socket+" ] && exit; sleep 0.2; done; exit 1"); err != nil {
		t.Fatalf("the driver is not served: %v", err)
	}
}

// run runs critest and returns the results of all cases.
func run(ctx context.Context, t *testing.T, vm *board.VM, focus string) []ginkgo.Result {
	t.Helper()
	log, err := os.Create(filepath.Join(t.ArtifactDir(), "critest.log"))
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	endpoint := "unix://" + socket
	argv := []string{
		program, "-runtime-endpoint", endpoint, "-image-endpoint", endpoint,
		"-ginkgo.no-color", "-ginkgo.timeout", longest.String(), "-test.timeout", (2 * longest).String(), "-ginkgo.junit-report", report,
	}
	if focus != "" {
		argv = append(argv, "-ginkgo.focus", focus)
	}
	began := time.Now()
	p, err := vm.Start(ctx, board.Cmd{Argv: argv, Stdout: log, Stderr: log})
	if err != nil {
		t.Fatal(err)
	}
	exit, ended := p.Wait()
	t.Logf("critest ended with exit code %d after %.0f s; its output is in %s", exit, time.Since(began).Seconds(), log.Name())
	text, err := vm.Get(ctx, report)
	if err := errors.Join(ended, err); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(t.ArtifactDir(), "junit.xml"), text, 0o644); err != nil {
		t.Fatal(err)
	}
	results, err := ginkgo.ReadJUnit(bytes.NewReader(text))
	if err != nil {
		t.Error(err)
	}
	return results
}

// end keeps the log of containerd and ends the board.
func end(t *testing.T, vm *board.VM) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), time.Minute)
	defer cancel()
	text, err := vm.Get(ctx, "/var/log/containerd.log")
	if err == nil {
		err = os.WriteFile(filepath.Join(t.ArtifactDir(), "containerd.log"), text, 0o644)
	}
	if err := errors.Join(err, vm.Close()); err != nil {
		t.Error(err)
	}
}

// built is the path of a program that make critest-programs builds.
func built(t *testing.T, program string) string {
	t.Helper()
	path, err := filepath.Abs(filepath.Join("..", "..", "..", ".cache", "critest", program))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		t.Fatalf("%v; make critest-programs builds it", err)
	}
	return path
}

// lines is a test's log as a writer of lines.
type lines struct{ t *testing.T }

func (l lines) Write(p []byte) (int, error) {
	l.t.Log(strings.TrimSuffix(string(p), "\n"))
	return len(p), nil
}
