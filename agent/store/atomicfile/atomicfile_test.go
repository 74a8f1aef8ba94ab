package atomicfile

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

func TestWrite(t *testing.T) {
	syscall.Umask(0o077)
	path := filepath.Join(t.TempDir(), "a", "b", "file")
	for _, text := range []string{"first", "second"} {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path+Suffix, []byte("of a crash"), 0o400); err != nil {
			t.Fatal(err)
		}
		if err := Write(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile(path)
		info, statErr := os.Stat(path)
		if err != nil || statErr != nil || string(got) != text || info.Mode() != 0o644 {
			t.Errorf("%q with %v, %v %v", got, info.Mode(), err, statErr)
		}
		if _, err := os.Lstat(path + Suffix); !os.IsNotExist(err) {
			t.Errorf("the temporary file is left: %v", err)
		}
	}
}

// A link at the temporary path is replaced and not followed.
func TestTemporaryLinkIsNotFollowed(t *testing.T) {
	dir := t.TempDir()
	path, other := filepath.Join(dir, "file"), filepath.Join(dir, "other")
	if err := os.WriteFile(other, []byte("other"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(other, path+Suffix); err != nil {
		t.Fatal(err)
	}
	if err := Write(path, []byte("new"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got, _ := os.ReadFile(other); string(got) != "other" {
		t.Errorf("the linked file has %q", got)
	}
}

// An error leaves the old file and no temporary one.
func TestErrorLeavesTheOldFile(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "file")
	if err := os.MkdirAll(filepath.Join(path, "entry"), 0o755); err != nil { // cannot be replaced by a file
		t.Fatal(err)
	}
	if err := Write(path, []byte("new"), 0o600); err == nil {
		t.Fatal("a directory was replaced")
	}
	if _, err := os.Lstat(path + Suffix); !os.IsNotExist(err) {
		t.Errorf("the temporary file is left: %v", err)
	}
	if _, err := os.Stat(filepath.Join(path, "entry")); err != nil {
		t.Error(err)
	}
}

func TestWriteIfChanged(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	for i, tc := range []struct {
		text string
		want bool
	}{{"a", true}, {"a", false}, {"b", true}, {"bc", true}} {
		before, _ := os.Stat(path)
		if err := WriteIfChanged(path, []byte(tc.text), 0o600); err != nil {
			t.Fatal(err)
		}
		after, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		if got := before == nil || !os.SameFile(before, after); got != tc.want {
			t.Errorf("write %d: changed is %v", i, got)
		}
		if data, err := os.ReadFile(path); err != nil || string(data) != tc.text {
			t.Errorf("write %d: the file has %q, %v", i, data, err)
		}
	}
}

func TestMkdirAll(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "a", "b")
	for range 2 {
		if err := MkdirAll(path, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for _, made := range []string{path, filepath.Dir(path)} {
		if info, err := os.Stat(made); err != nil || !info.IsDir() || info.Mode().Perm() != 0o700 {
			t.Errorf("%s: %v, %v", made, info, err)
		}
	}
	if err := MkdirAll(path, 0o755); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("an existing directory was changed: %v, %v", info, err)
	}
}
