package filewatch

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

func TestSignature(t *testing.T) {
	folder := t.TempDir()
	path := filepath.Join(folder, "a")
	at := NewPath(path)
	if s, err := at.Stat(); !errors.Is(err, unix.ENOENT) || s != (Signature{}) {
		t.Errorf("signature %+v, error %v", s, err)
	}
	write(t, path, "one")
	before, err := at.Stat()
	must(t, err)
	info, err := os.Stat(path)
	must(t, err)
	if before.Size != 3 || !before.IsRegular() || before.IsDir() || !before.Modified().Equal(info.ModTime()) {
		t.Errorf("signature %+v", before)
	}
	file, err := os.Open(path)
	must(t, err)
	defer file.Close()
	if same, err := StatFile(file); err != nil || same != before {
		t.Errorf("signature %+v, error %v, want %+v", same, err, before)
	}
	write(t, path+".new", "two")
	must(t, os.Rename(path+".new", path))
	after, err := at.Stat()
	if must(t, err); after == before || after.SameFile(&before) {
		t.Errorf("signature %+v of another file", after)
	}
	must(t, os.Chmod(path, 0o600))
	if s, err := at.Stat(); err != nil || s == after || !s.SameFile(&after) {
		t.Errorf("signature %+v after chmod, error %v", s, err)
	}
	dir := NewPath(folder)
	if s, err := dir.Stat(); err != nil || !s.IsDir() {
		t.Errorf("signature %+v of a directory, error %v", s, err)
	}
	if n := testing.AllocsPerRun(100, func() { _, _ = at.Stat() }); n > 0 {
		t.Errorf("%v allocations", n)
	}
}
