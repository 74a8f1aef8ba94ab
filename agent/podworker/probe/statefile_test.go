package probe

import (
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
)

// inMemory returns a directory of a tmpfs, which the test removes.
func inMemory(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "tinylet-test-")
	if err != nil {
		t.Skipf("no folder in memory: %v", err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// TestStateFile checks what is read and where nothing is kept.
func TestStateFile(t *testing.T) {
	log := slog.New(slog.NewTextHandler(io.Discard, nil))
	memory := inMemory(t)
	dir := filepath.Join(memory, "missing")
	saved, save := OpenState(dir, log)
	if saved != nil || save == nil {
		t.Fatalf("first start: %q, saves: %v", saved, save != nil)
	}
	for _, text := range []string{"one", "two"} {
		if err := save([]byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	path := filepath.Join(dir, StateFile)
	if saved, _ = OpenState(dir, log); string(saved) != "two" {
		t.Errorf("read %q", saved)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/dev/zero", path); err != nil {
		t.Fatal(err)
	}
	if saved, save = OpenState(dir, log); len(saved) != 0 || save == nil {
		t.Errorf("by a symbolic link: %q, saves: %v", saved, save != nil)
	}
	dir = "/proc" // stands for a disk
	if saved, save = OpenState(dir, log); saved != nil || save != nil {
		t.Error("state is kept outside memory")
	}
}
