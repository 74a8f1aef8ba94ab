package podcgroup

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/tinylet/tinylet/cgroups"
)

// With the systemd driver and no systemd, operations return ErrNoSystemd.
func TestDriver(t *testing.T) {
	root := t.TempDir()
	for _, name := range []string{"cgroup.controllers", "cgroup.subtree_control"} {
		if err := os.WriteFile(filepath.Join(root, name), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	tree, err := cgroups.Open(root)
	if err != nil {
		t.Fatal(err)
	}
	systemd := false
	d := New(tree, func() bool { return systemd })
	d.slices = tree.NewSlices(t.TempDir())
	t.Cleanup(d.Close)
	const path = "/kubepods.slice"
	for _, systemd = range []bool{true, false} {
		err := d.Ensure(path, cgroups.Resources{})
		if systemd != errors.Is(err, cgroups.ErrNoSystemd) || systemd == d.Exists(path) {
			t.Errorf("by systemd %t: %v, exists %t", systemd, err, d.Exists(path))
		}
	}
	if err := os.WriteFile(filepath.Join(root, path, "cgroup.events"), []byte("populated 0\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if names, err := d.List("/"); err != nil || len(names) != 1 {
		t.Errorf("listed %q, %v", names, err)
	}
	if err := errors.Join(d.Kill("/gone"), d.Delete(path)); err != nil || d.Exists(path) {
		t.Errorf("taken down: %v", err)
	}
}
