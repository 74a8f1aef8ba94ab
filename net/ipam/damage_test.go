package ipam

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// A damaged file contains no lease. Allocate of its owner creates a new one, and Release and
// Collect remove the file with its links.
func TestDamagedFiles(t *testing.T) {
	whole := func(t *testing.T, path string) []byte {
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return data
	}
	for name, damage := range map[string]func(data []byte) []byte{
		"empty":         func([]byte) []byte { return nil },
		"torn":          func(d []byte) []byte { return d[:len(d)/2] },
		"zeros":         func(d []byte) []byte { return make([]byte, len(d)) },
		"garbage":       func([]byte) []byte { return []byte("\xff\x00{") },
		"not an object": func([]byte) []byte { return []byte("[]") },
		"trailing":      func(d []byte) []byte { return append(d, 'x') },
		"oversized":     func(d []byte) []byte { return append(d, bytes.Repeat([]byte(" "), maxFile)...) },
		"huge":          func(d []byte) []byte { return append(d, make([]byte, 8<<20)...) },
		"other owner":   func(d []byte) []byte { return bytes.Replace(d, []byte(`"me"`), []byte(`"you"`), 1) },
		"other boot":    func(d []byte) []byte { return bytes.Replace(d, []byte(`"boot":"a"`), []byte(`"boot":"b"`), 1) },
		"no address":    func(d []byte) []byte { return bytes.Replace(d, []byte(`"fd01::`), []byte(`"xfd01::`), 1) },
		"another's":     func(d []byte) []byte { return bytes.Replace(d, []byte(`"fd01::`), []byte(`"fd99::`), 1) },
		"many addresses": func(d []byte) []byte {
			return bytes.Replace(d, []byte(`"fd01::`), []byte(strings.Repeat(`"10.9.9.9",`, 20)+`"fd01::`), 1)
		},
	} {
		t.Run(name, func(t *testing.T) {
			for _, f := range followers {
				s := open(t, t.TempDir(), "a")
				allocate(t, s, request("me", small, dual))
				path := filepath.Join(s.owners.Name(), fileName("me"))
				if err := os.WriteFile(path, damage(whole(t, path)), 0o600); err != nil {
					t.Fatal(err)
				}
				if l, err := s.Get("me"); !errors.Is(err, fs.ErrNotExist) {
					t.Fatalf("got %+v, %v", l, err)
				}
				if l, err := s.List(); len(l) != 0 || err != nil {
					t.Fatalf("all: %+v, %v", l, err)
				}
				t.Run(f.name, func(t *testing.T) { f.call(t, s) })
				unique(t, s)
				if _, err := s.Collect(nil); err != nil {
					t.Error(err)
				}
				tidy(t, s)
			}
		})
	}
}

// A file that no Store has created is not removed, its address is not allocated, Collect
// reports it, and it does not affect other owners.
func TestForeignFiles(t *testing.T) {
	for name, make := range map[string]func(path string) error{
		"a folder":        func(p string) error { return os.Mkdir(p, 0o700) },
		"a link":          func(p string) error { return os.Symlink("../owners/"+fileName("x")+"/../y", p) },
		"a link to dev":   func(p string) error { return os.Symlink("/dev/zero", p) },
		"a link to links": func(p string) error { return os.Symlink(filepath.Base(p), p) },
		"a pipe":          func(p string) error { return unix.Mkfifo(p, 0o600) },
		"a socket":        func(p string) error { return unix.Mknod(p, unix.S_IFSOCK|0o600, 0) },
	} {
		t.Run(name, func(t *testing.T) {
			s := open(t, t.TempDir(), "a")
			if err := errors.Join(make(filepath.Join(s.owners.Name(), fileName("me"))), make(filepath.Join(s.links.Name(), "fd01::2"))); err != nil {
				t.Fatal(err)
			}
			if l, err := s.Allocate(request("me", small)); err == nil {
				t.Errorf("took %+v", l)
			}
			if err := s.Release("me"); err == nil {
				t.Error("released")
			}
			if err := s.SetDetail("me", []byte("x")); err == nil {
				t.Error("amended")
			}
			if _, err := s.Get("me"); err == nil {
				t.Error("got one")
			}
			var busy ErrAllocated
			if _, err := s.Allocate(Request{Owner: "you", Ranges: []Range{small}, Addresses: addrs("fd01::2")}); !errors.As(err, &busy) || busy.Owner != "" {
				t.Errorf("take by name: %v", err)
			}
			l := allocate(t, s, request("you", small))
			if l.Addresses[0].String() != "fd01::3" {
				t.Errorf("took %+v", l)
			}
			if got, err := s.List(); len(got) != 1 || !got[0].same(l) {
				t.Errorf("all: %+v, %v", got, err)
			}
			gone, err := s.Collect(func(Lease) bool { return false })
			if gone != 1 || err == nil || !strings.Contains(err.Error(), "fd01::2 is not the link of a lease: remove it") {
				t.Errorf("gone %d, %v", gone, err)
			}
			if left := files(t, s); len(left) != 2 {
				t.Errorf("left %q", left)
			}
		})
	}
}

// Collect frees nothing if it cannot read the directory of the links. It panicked.
func TestCollectWithoutLinks(t *testing.T) {
	s := open(t, t.TempDir(), "a")
	allocate(t, s, request("me", small))
	before := files(t, s)
	if err := s.links.Close(); err != nil {
		t.Fatal(err)
	}
	if gone, err := s.Collect(func(Lease) bool { return false }); !errors.Is(err, fs.ErrClosed) || gone != 0 {
		t.Errorf("gone %d, %v", gone, err)
	}
	if after := files(t, s); !slices.Equal(before, after) {
		t.Errorf("files before %q, after %q", before, after)
	}
}

// Files with other names in the directories are not removed.
func TestForeignNames(t *testing.T) {
	s := open(t, t.TempDir(), "a")
	for _, path := range []string{s.owners.Name() + "/notes", s.owners.Name() + "/x.new", s.links.Name() + "/notes", s.links.Name() + "/010.1.1.1"} {
		if err := os.WriteFile(path, []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	l := allocate(t, s, request("me", small))
	if got := leases(t, s); len(got) != 1 || !got[0].same(l) {
		t.Errorf("all: %+v", got)
	}
	if _, err := s.Collect(nil); err == nil || strings.Count(err.Error(), "remove it") != 2 || len(files(t, s)) != 6 {
		t.Errorf("%v, left %q", err, files(t, s))
	}
}

// Files that the process may not read cause a permission error, and no lease is lost.
func TestUnreadable(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("taking rights away for a while takes root")
	}
	s := open(t, t.TempDir(), "a")
	mine := allocate(t, s, request("me", small))
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // it ends with the goroutine, and so do its rights
		if _, _, errno := unix.RawSyscall(unix.SYS_SETFSUID, 65534, 0, 0); errno != 0 {
			t.Error(errno)
			return
		}
		_, errTake := s.Allocate(request("me", small))
		_, errOther := s.Allocate(request("you", small))
		errRelease := s.Release("me")
		_, errGet := s.Get("me")
		_, errAll := s.List()
		_, errCollect := s.Collect(func(Lease) bool { return false })
		for _, err := range []error{errTake, errOther, errRelease, errGet, s.SetDetail("me", nil), errAll, errCollect} {
			if !errors.Is(err, fs.ErrPermission) {
				t.Errorf("error: %v", err)
			}
		}
	}()
	<-done
	if got := leases(t, s); len(got) != 1 || !got[0].same(mine) {
		t.Errorf("left %+v", got)
	}
}

func TestNoSymbolicLinks(t *testing.T) {
	for _, errno := range []unix.Errno{unix.EPERM, unix.EOPNOTSUPP, unix.ENOSYS} {
		err := linkError(&os.LinkError{Op: "symlinkat", Err: errno})
		if !errors.Is(err, ErrNoSymlinks) || !errors.Is(err, errno) {
			t.Errorf("%v: %v", errno, err)
		}
	}
	if err := linkError(unix.ENOSPC); errors.Is(err, ErrNoSymlinks) {
		t.Error(err)
	}
}

func FuzzLease(f *testing.F) {
	l := Lease{Owner: "o", Addresses: addrs("10.42.0.2", "fd00::2"), Boot: "a", Detail: []byte("x")}
	data, err := l.encode()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(data)
	f.Add(data[:20])
	f.Add([]byte(`{"owner":"o","addresses":["10.42.0.2"],"boot":"a","time":"0001-01-01T00:00:00Z"}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		l, err := decode(data, fileName("o"), "a")
		if err != nil {
			return
		}
		if l.Owner != "o" || l.Boot != "a" || checkAddresses(l.Addresses) != nil {
			t.Fatalf("%+v", l)
		}
		again, err := l.encode()
		if err != nil {
			return // it was at its longest
		}
		if m, err := decode(again, fileName("o"), "a"); err != nil || !m.same(l) || string(m.Detail) != string(l.Detail) {
			t.Fatalf("%+v: %+v, %v", l, m, err)
		}
	})
}
