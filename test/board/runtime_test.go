//go:build board

package board

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"testing"
)

// TestRuntimeConformance runs the product's suite for runtime drivers on the
// board, against its containerd: sandboxes with a network, containers with
// logs, events, and a restart of containerd.
func TestRuntimeConformance(t *testing.T) {
	ctx, im := prepared(t)
	binary := filepath.Join(t.TempDir(), "cri.test")
	buildTest(ctx, t, im.Arch, binary, "./agent/container/cri")
	vm := booted(ctx, t, im, VMOptions{Files: []File{{Path: "/usr/lib/board/cri.test", Mode: 0o755, Source: binary}}})
	var said bytes.Buffer
	out, err := vm.RunCmd(ctx, Cmd{
		Argv: []string{"/usr/lib/board/cri.test", "-test.run", "TestConformanceOverRuntime", "-test.v", "-test.timeout", fmt.Sprint(boardTime)},
		Env: []string{
			"TINYLET_CRI_ENDPOINT=unix:///run/containerd/containerd.sock",
			"TINYLET_CRI_IMAGE=" + BusyboxImage,
			"TINYLET_CRI_PATIENCE=120s",
			"TINYLET_CRI_RESTART=/etc/init.d/S40containerd restart",
		},
		Stdout: io.MultiWriter(&said, testLog{t}), Stderr: testLog{t},
	})
	if err != nil {
		t.Fatal(err)
	}
	if out.Exit != 0 || !strings.Contains(said.String(), "--- PASS: TestConformanceOverRuntime") {
		t.Errorf("the suite ends with exit code %d and does not pass", out.Exit)
		log, err := vm.Get(ctx, "/var/log/containerd.log")
		t.Logf("containerd's log: %s, %v", tail(string(log), 5000), err)
	}
}

// buildTest builds the tests of a package of the product for a board.
func buildTest(ctx context.Context, t *testing.T, a Arch, file, pkg string) {
	t.Helper()
	repo, err := findRepo()
	if err != nil {
		t.Fatal(err)
	}
	env, err := a.GoEnv()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := run(ctx, repo, env, "go", "test", "-c", "-trimpath", "-ldflags", "-s -w", "-o", file, pkg); err != nil {
		t.Fatal(err)
	}
}
