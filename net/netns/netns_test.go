package netns

import (
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/tinylet/tinylet/net/netns/nstest"
)

func TestOpen(t *testing.T) {
	dir := t.TempDir()
	pinned, link := filepath.Join(dir, "pinned"), filepath.Join(dir, "link")
	ns := nstest.New(t)
	if err := os.WriteFile(pinned, nil, 0o400); err != nil {
		t.Fatal(err)
	}
	if err := Do(ns, func() error { return unix.Mount(ownNamespace, pinned, "", unix.MS_BIND, "") }); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(pinned, unix.MNT_DETACH) })
	if err := os.Symlink(pinned, link); err != nil {
		t.Fatal(err)
	}
	want, err := ns.Stat()
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{pinned, link} {
		opened, err := Open(path)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := opened.Stat(); err != nil || !os.SameFile(got, want) {
			t.Errorf("%s is another namespace: %v", path, err)
		}
		opened.Close()
	}
}

func TestOpenRefuses(t *testing.T) {
	dir := t.TempDir()
	file, fifo := filepath.Join(dir, "file"), filepath.Join(dir, "fifo")
	if err := os.WriteFile(file, []byte("kept"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{file, fifo, dir, "/dev/null", "/proc/self/ns/uts", "/proc/self/status"} {
		if ns, err := Open(path); !errors.Is(err, ErrNotNamespace) {
			t.Errorf("open %s: %v, %v", path, ns, err)
		}
	}
	if _, err := Open(filepath.Join(dir, "none")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a file that does not exist: %v", err)
	}
}

func TestDo(t *testing.T) {
	ns := nstest.New(t)
	inside := ""
	if err := Do(ns, func() (err error) {
		inside, err = os.Readlink(ownNamespace)
		if err != nil {
			return err
		}
		all, err := net.Interfaces()
		if len(all) != 1 || all[0].Flags&net.FlagLoopback == 0 || all[0].Flags&net.FlagUp != 0 {
			t.Errorf("a new namespace has %v", all)
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	for range 64 {
		if now, err := os.Readlink(ownNamespace); err != nil || now == inside {
			t.Fatalf("a thread is in %s, %v", now, err)
		}
	}
	failed := errors.New("failed")
	if err := Do(ns, func() error { return failed }); !errors.Is(err, failed) {
		t.Errorf("the function's error is %v", err)
	}
	none, err := os.Create(filepath.Join(t.TempDir(), "none"))
	if err != nil {
		t.Fatal(err)
	}
	defer none.Close()
	if err := Do(none, func() error { return nil }); err == nil {
		t.Error("a file that is no namespace was entered")
	}
}
