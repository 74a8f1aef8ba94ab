package secretfile

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func TestRead(t *testing.T) {
	dir := t.TempDir()
	for _, row := range []struct {
		mode fs.FileMode
		want error
	}{{0o600, nil}, {0o400, nil}, {0o700, nil}, {0o640, ErrExposed}, {0o604, ErrExposed}, {0o620, ErrExposed}, {0o644, ErrExposed}, {0o666, ErrExposed}} {
		path := filepath.Join(dir, "secret")
		if err := os.WriteFile(path, []byte("words"), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, row.mode); err != nil {
			t.Fatal(err)
		}
		text, err := Read(path, 5)
		if !errors.Is(err, row.want) || err == nil && string(text) != "words" {
			t.Errorf("mode %04o: %q, %v", row.mode, text, err)
		}
		if err != nil && (!strings.Contains(err.Error(), "chmod 600") || !strings.Contains(err.Error(), path)) {
			t.Errorf("mode %04o: %v", row.mode, err)
		}
	}
	if err := os.Chmod(filepath.Join(dir, "secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Read(filepath.Join(dir, "secret"), 4); err == nil {
		t.Error("a file over the limit was read")
	}
	if err := unix.Mkfifo(filepath.Join(dir, "fifo"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"fifo", "none", "."} {
		if _, err := Read(filepath.Join(dir, name), 5); err == nil {
			t.Errorf("%s was read", name)
		}
	}
}

func TestExposedIn(t *testing.T) {
	for _, row := range []struct {
		folder, file fs.FileMode
		want         bool
	}{
		{0o700, 0o666, false}, {0o755, 0o600, false}, {0o755, 0o644, true}, {0o755, 0o640, true},
		{0o710, 0o604, false}, {0o710, 0o640, true}, {0o701, 0o640, false}, {0o701, 0o604, true}, {0o766, 0o644, false},
	} {
		if got := ExposedIn(row.folder, row.file); got != row.want {
			t.Errorf("folder %04o, file %04o: %v", row.folder, row.file, got)
		}
	}
}
