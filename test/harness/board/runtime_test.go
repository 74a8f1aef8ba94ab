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

// TestRuntimeConformance runs what the product tests against a real runtime on
// the board, against its containerd: the suite for runtime drivers, with
// sandboxes that have a network, containers with logs, events, and a restart
// of containerd; and the import of image archives.
func TestRuntimeConformance(t *testing.T) {
	ctx, im := prepared(t)
	tests := []struct{ name, pkg, test string }{
		{"cri", "./agent/container/cri", "TestConformanceOverRuntime"},
		{"preload", "./agent/container/preload", "TestOverContainerd"},
	}
	var files []File
	for _, tt := range tests {
		binary := filepath.Join(t.TempDir(), tt.name+".test")
		buildTest(ctx, t, im.Arch, binary, tt.pkg)
		files = append(files, File{Path: guestTest(tt.name), Mode: 0o755, Source: binary})
	}
	vm := booted(ctx, t, im, VMOptions{Files: files})
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var said bytes.Buffer
			out, err := vm.RunCmd(ctx, Cmd{
				Argv: []string{guestTest(tt.name), "-test.run", "^" + tt.test + "$", "-test.v", "-test.timeout", fmt.Sprint(boardTime)},
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
			// One that skips itself has not passed.
			if out.Exit != 0 || !strings.Contains(said.String(), "--- PASS: "+tt.test) {
				t.Errorf("%s ends with exit code %d and does not pass", tt.test, out.Exit)
				log, err := vm.Get(ctx, "/var/log/containerd.log")
				t.Logf("containerd's log: %s, %v", tail(string(log), 5000), err)
			}
		})
	}
}

// guestTest is where a package's tests lie on the board.
func guestTest(name string) string { return "/usr/lib/board/" + name + ".test" }

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
