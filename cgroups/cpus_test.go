package cgroups

import (
	"errors"
	"testing"
)

func TestCPUs(t *testing.T) {
	tree := &Tree{root: t.TempDir()}
	writeGroup(t, tree, "/a", map[string]string{fileCPUs: "0-1\n"})
	writeGroup(t, tree, "/b", nil)
	if got, err := tree.CPUs("/a"); got != "0-1" || err != nil {
		t.Errorf("read %q, %v", got, err)
	}
	if err := tree.SetCPUs("/a", "3"); err != nil {
		t.Fatal(err)
	}
	if got, err := tree.CPUs("/a"); got != "3" || err != nil {
		t.Errorf("read %q after 3 was written, %v", got, err)
	}
	for path, want := range map[string]error{"/b": ErrController, "/c": ErrNotFound} {
		if _, err := tree.CPUs(path); !errors.Is(err, want) {
			t.Errorf("read in %s: %v, want %v", path, err, want)
		}
		if err := tree.SetCPUs(path, "1"); !errors.Is(err, want) {
			t.Errorf("write in %s: %v, want %v", path, err, want)
		}
	}
	if _, err := tree.CPUs("/../a"); err == nil {
		t.Error("a path that leaves the root is read")
	}
}
