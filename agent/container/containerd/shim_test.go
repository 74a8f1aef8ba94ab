package containerd

import (
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestMain also runs as the shims of the tests: processes that wait for the end of
// stdin.
func TestMain(m *testing.M) {
	if strings.HasSuffix(os.Args[0], "/"+shimProgram) {
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// start starts a process with a command line. end closes its stdin and returns how the
// process ended: "" for the end of stdin.
func start(t *testing.T, words ...string) (end func() string) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(t.TempDir(), filepath.Base(words[0]))
	if err := os.Link(self, program); err != nil { // on another file system
		text, err := os.ReadFile(self)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(program, text, 0o700); err != nil { //nolint:gosec // a program
			t.Fatal(err)
		}
	}
	cmd := exec.CommandContext(t.Context(), program)
	cmd.Args = words
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return func() string {
		if err := in.Close(); err != nil {
			t.Error(err)
		}
		_ = cmd.Wait()
		if ws := cmd.ProcessState.Sys().(syscall.WaitStatus); ws.Signaled() {
			return ws.Signal().String()
		}
		return ""
	}
}

func TestEndShim(t *testing.T) {
	const bin = "/usr/bin/" + shimProgram
	shim := start(t, bin, "-namespace", "k8s.io", "-id", "wanted", "-address", "/run/containerd/containerd.sock")
	others := map[string]func() string{
		"another sandbox's": start(t, bin, "-namespace", "k8s.io", "-id", "wanted2"),
		"another namespace": start(t, bin, "-namespace", "moby", "-id", "wanted"),
		"without a value":   start(t, bin, "-namespace", "k8s.io", "-id"),
	}
	tasks, err := New("/run/none")
	if err != nil {
		t.Fatal(err)
	}
	if found, err := tasks.EndShim("wanted"); !found || err != nil {
		t.Errorf("%v, %v", found, err)
	}
	if got := shim(); got != "killed" {
		t.Errorf("the shim ended by %q", got)
	}
	for name, end := range others {
		if got := end(); got != "" {
			t.Errorf("%s ended by %q", name, got)
		}
	}
	for _, id := range []string{"wanted", ""} {
		if found, err := tasks.EndShim(id); found || err != nil {
			t.Errorf("again %q: %v, %v", id, found, err)
		}
	}
}

func TestIsShim(t *testing.T) {
	for line, want := range map[string]bool{
		"/usr/bin/containerd-shim-runc-v2\x00-namespace\x00k8s.io\x00-id\x00a\x00-address\x00/s\x00": true,
		"containerd-shim-runc-v2\x00-id\x00a\x00-namespace\x00k8s.io\x00":                            true,
		"":     false,
		"\x00": false,
		"containerd-shim-runsc-v1\x00-namespace\x00k8s.io\x00-id\x00a\x00":           false,
		"containerd-shim-runc-v2-x\x00-namespace\x00k8s.io\x00-id\x00a\x00":          false,
		"sh\x00-c\x00containerd-shim-runc-v2 -namespace k8s.io -id a\x00":            false,
		"containerd-shim-runc-v2\x00-namespace\x00k8s.io\x00-id\x00ab\x00":           false,
		"containerd-shim-runc-v2\x00-namespace\x00k8s.io\x00-id\x00b\x00-x\x00a\x00": false,
	} {
		if got := isShim([]byte(line), "a"); got != want {
			t.Errorf("%q: %v", line, got)
		}
	}
}

// TestEndShimReads: EndShim handles malformed and hostile entries in /proc.
func TestEndShimReads(t *testing.T) {
	proc := t.TempDir()
	tasks := &Tasks{proc: proc, readTimeout: time.Minute}
	for _, dir := range []string{"1x", "self", "-1", "4194305"} {
		if err := os.Mkdir(filepath.Join(proc, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("/usr/bin/"+shimProgram+" (deleted)", filepath.Join(proc, "4194305", "exe")); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(proc, "4194305", "cmdline"), []byte(strings.Repeat("a", 3*maxCommandLine)), 0o600); err != nil {
		t.Fatal(err)
	}
	if found, err := tasks.EndShim("a"); found || err != nil {
		t.Errorf("%v, %v", found, err)
	}
	tasks.proc = filepath.Join(proc, "none")
	if _, err := tasks.EndShim("a"); err == nil {
		t.Error("no list of processes, and no error")
	}
}

// TestEndShimOfHangingProcesses: processes whose command line cannot be read, as with a
// FUSE file system of a container, delay the search but do not block it.
func TestEndShimOfHangingProcesses(t *testing.T) {
	proc := t.TempDir()
	tasks := &Tasks{proc: proc, readTimeout: time.Millisecond}
	var pipes []string
	for i := range maxReaders + 1 {
		dir := filepath.Join(proc, strconv.Itoa(4194305+i))
		pipe := filepath.Join(dir, "cmdline")
		pipes = append(pipes, pipe)
		if err := errors.Join(os.Mkdir(dir, 0o755), os.Symlink("/usr/bin/"+shimProgram, filepath.Join(dir, "exe")), syscall.Mkfifo(pipe, 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	if found, err := tasks.EndShim("a"); found || !errors.Is(err, errReaders) {
		t.Errorf("%v, %v", found, err)
	}
	if n := tasks.readers.Load(); n != maxReaders {
		t.Errorf("%d readers hang", n)
	}
	for _, pipe := range pipes[:maxReaders] {
		f, err := os.OpenFile(pipe, os.O_WRONLY, 0)
		if err != nil {
			t.Fatal(err)
		}
		f.Close()
	}
	for tasks.readers.Load() > 0 {
		time.Sleep(time.Millisecond)
	}
}
