package journal

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

func TestFolderAndFile(t *testing.T) {
	above := filepath.Join(t.TempDir(), "a", "b")
	dir := filepath.Join(above, "journal")
	j, err := Open(Config{Dir: dir, Log: quiet()})
	if err != nil {
		t.Fatal(err)
	}
	mustWrite(t, j, put("a", "1"))
	mode := func(path string, want fs.FileMode) {
		t.Helper()
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		if info.Mode() != want {
			t.Errorf("%s has mode %v, want %v", path, info.Mode(), want)
		}
	}
	mode(above, fs.ModeDir|0o700)
	mode(dir, fs.ModeDir|0o700)
	mode(filepath.Join(dir, fileName), 0o600)
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	// A folder that is there is left as it is.
	if err := os.Chmod(dir, 0o750); err != nil {
		t.Fatal(err)
	}
	left := filepath.Join(dir, newName)
	if err := os.WriteFile(left, []byte("half"), 0o600); err != nil {
		t.Fatal(err)
	}
	j, err = Open(Config{Dir: dir, Log: quiet()})
	if err != nil {
		t.Fatal(err)
	}
	expect(t, j, state{"a": "1"})
	mode(dir, fs.ModeDir|0o750)
	if _, err := os.Stat(left); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("what a rewrite left: %v", err)
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestLock(t *testing.T) {
	dir := t.TempDir()
	first, err := Open(Config{Dir: dir, Log: quiet()})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Open(Config{Dir: dir, Log: quiet()}); !errors.Is(err, ErrLocked) {
		t.Errorf("a second one: %v", err)
	}
	mustWrite(t, first, put("a", "1"))
	// As a child that has not yet called exec has it.
	inherited, err := unix.Dup(int(first.disk.(*directory).dir.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(inherited)
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	second, err := Open(Config{Dir: dir, Log: quiet()})
	if err != nil {
		t.Fatal(err)
	}
	expect(t, second, state{"a": "1"})
	if err := second.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestStoryOnADisk runs the stories on a real file system.
func TestStoryOnADisk(t *testing.T) {
	tellings(t, func(t *testing.T, s story, seal *sealer) {
		c := Config{Dir: t.TempDir(), Log: quiet()}
		if seal != nil {
			c.Key = testKey(1)
		}
		all := s.states
		for i, batch := range s.batches {
			j, err := Open(c)
			if err != nil {
				t.Fatal(err)
			}
			expect(t, j, all[i])
			mustWrite(t, j, batch...)
			expect(t, j, all[i+1])
			if err := j.Close(); err != nil {
				t.Fatal(err)
			}
		}
	})
}

func TestLinkOutOfTheFolder(t *testing.T) {
	dir, outside := t.TempDir(), filepath.Join(t.TempDir(), "outside")
	if err := os.WriteFile(outside, []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(outside, filepath.Join(dir, fileName)); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(Config{Dir: dir, Log: quiet()}); err == nil {
		t.Error("a link out of the folder was followed")
	}
	if got, err := os.ReadFile(outside); err != nil || string(got) != "mine" {
		t.Errorf("outside has %q, %v", got, err)
	}
}
