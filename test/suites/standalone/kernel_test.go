//go:build board

package standalone

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tinylet/tinylet/test/harness/board"
)

// ofTheKernel are the packages whose tests need a kernel that has cgroup v2
// alone, with all controllers, and root: on most machines they are skipped in
// part.
var ofTheKernel = []string{"cgroups"}

// elsewhere are tests of theirs that make their own systemd: TestSystemd has a
// board with one.
const elsewhere = "^TestOnSystemd$"

// TestOnTheKernel runs those tests on a board, where none may be skipped.
func TestOnTheKernel(t *testing.T) {
	env, err := arch().GoEnv()
	if err != nil {
		t.Fatal(err)
	}
	var files []board.File
	for _, pkg := range ofTheKernel {
		binary := filepath.Join(t.TempDir(), pkg+".test")
		build := exec.Command("go", "test", "-c", "-o", binary, "./"+pkg)
		build.Dir, build.Env = filepath.Join("..", "..", ".."), append(os.Environ(), env...)
		if out, err := build.CombinedOutput(); err != nil {
			t.Fatalf("build the tests of %s: %v\n%s", pkg, err, out)
		}
		files = append(files, board.File{Path: "/root/tests/" + pkg + "/" + pkg + ".test", Mode: 0o755, Source: binary})
		files = append(files, testdata(t, pkg)...)
	}
	n := bootDisk(t, board.VMOptions{MemoryMB: 256, Files: files})
	for _, pkg := range ofTheKernel {
		t.Run(pkg, func(t *testing.T) {
			out, err := n.vm.Run(n.ctx, "sh", "-c", "cd /root/tests/"+pkg+" && ./"+pkg+".test -test.v -test.skip '"+elsewhere+"' 2>&1")
			if err != nil {
				t.Fatal(err)
			}
			if out.Exit != 0 || strings.Contains(string(out.Stdout), "--- SKIP") {
				t.Errorf("exit code %d, and none may be skipped:\n%s", out.Exit, out.Stdout)
			}
		})
	}
}

// testdata are the files that a package's tests read.
func testdata(t *testing.T, pkg string) (files []board.File) {
	t.Helper()
	root := filepath.Join("..", "..", "..", pkg, "testdata")
	err := filepath.WalkDir(root, func(path string, e os.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		rel, err := filepath.Rel(root, path)
		files = append(files, board.File{Path: "/root/tests/" + pkg + "/testdata/" + rel, Mode: 0o644, Source: path})
		return err
	})
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	return files
}
