package cgroups

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

func TestAGroupMadeAgainHasAnotherNumber(t *testing.T) {
	tree := &Tree{root: t.TempDir()}
	dir := filepath.Join(tree.root, "a")
	if _, err := tree.ID("/a"); !errors.Is(err, ErrNotFound) {
		t.Errorf("a group that does not exist: %v", err)
	}
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	first, err := tree.ID("/a")
	if err != nil || first == 0 {
		t.Fatal(first, err)
	}
	// A folder elsewhere keeps the first number taken until its name goes.
	if err := os.Rename(dir, dir+"-old"); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if again, err := tree.ID("/a"); err != nil || again == first {
		t.Errorf("the same number %d, %v", again, err)
	}
	if _, err := tree.ID("/../a"); err == nil {
		t.Error("a path that leaves the root has a number")
	}
}
