// Package cgroupstest creates directories with the files of a cgroup v2 hierarchy, for tests that
// read usage and limits.
package cgroupstest

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/tinylet/tinylet/cgroups"
)

// Hierarchy is a directory with the files of cgroups.
type Hierarchy struct {
	// Root is the path of the root cgroup.
	Root string
	t    testing.TB
}

// New creates a hierarchy whose root cgroup has the controllers cpu and memory.
func New(t testing.TB) (*Hierarchy, *cgroups.Tree) {
	t.Helper()
	h := &Hierarchy{Root: t.TempDir(), t: t}
	h.Write("/", map[string]string{"cgroup.controllers": "cpu memory\n"})
	tree, err := cgroups.Open(h.Root)
	if err != nil {
		t.Fatal(err)
	}
	return h, tree
}

// Write creates a cgroup if necessary, and writes its files.
func (h *Hierarchy) Write(cgroup string, files map[string]string) {
	h.t.Helper()
	dir := filepath.Join(h.Root, cgroup)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		h.t.Fatal(err)
	}
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			h.t.Fatal(err)
		}
	}
}

// Uses writes the CPU time and the working set in bytes of a cgroup.
func (h *Hierarchy) Uses(cgroup string, cpu time.Duration, bytes int) {
	h.t.Helper()
	h.Write(cgroup, map[string]string{
		"cgroup.controllers": "cpu memory\n",
		"cpu.stat":           fmt.Sprintf("usage_usec %d\n", cpu.Microseconds()), "memory.current": fmt.Sprintln(bytes + 100), "memory.stat": "inactive_file 100\n",
	})
}
