package ipam

import (
	"errors"
	"io/fs"
	"os"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
)

// onTmpfs runs f with a small tmpfs at dir, in a mount namespace of its thread.
func onTmpfs(t *testing.T, options string, f func(t *testing.T, dir string)) {
	t.Helper()
	dir := t.TempDir()
	done := make(chan error)
	go func() {
		var err error
		defer func() { done <- err }()
		runtime.LockOSThread() // it ends with the goroutine, and the mount with it
		if err = unix.Unshare(unix.CLONE_FS | unix.CLONE_NEWNS); err != nil {
			return
		}
		if err = unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
			return
		}
		if err = unix.Mount("tmpfs", dir, "tmpfs", 0, options); err == nil {
			f(t, dir)
		}
	}()
	err := <-done
	if errors.Is(err, fs.ErrPermission) {
		t.Skip("no file system can be mounted: tests of full ones need root")
	}
	if err != nil {
		t.Fatal(err)
	}
}

// mustOpen is open where the test's end would be too late to close.
func mustOpen(t *testing.T, dir string) *Store {
	s, err := Open(Config{Dir: dir, BootID: "a"})
	if err != nil {
		t.Error(err)
		runtime.Goexit()
	}
	return s
}

func fill(t *testing.T, path string) {
	f, err := os.Create(path)
	if err != nil {
		t.Error(err)
		return
	}
	defer f.Close()
	for err == nil {
		_, err = f.Write(make([]byte, 4096))
	}
	if !errors.Is(err, unix.ENOSPC) {
		t.Error(err)
	}
}

func TestFullOfData(t *testing.T) {
	onTmpfs(t, "size=64k", func(t *testing.T, dir string) {
		s := mustOpen(t, dir)
		defer s.Close()
		r := request("me", other, dual)
		mine, err := s.Allocate(r)
		if err != nil {
			t.Error(err)
			return
		}
		fill(t, dir+"/ballast")
		full(t, s, mine)
		if err := os.Remove(dir + "/ballast"); err != nil {
			t.Error(err)
		}
		if _, err := s.Allocate(request("you", other)); err != nil {
			t.Errorf("take with room again: %v", err)
		}
	})
}

func TestFullOfFiles(t *testing.T) {
	for inodes, left := range map[string]int{"nr_inodes=7": 0, "nr_inodes=8": 1, "nr_inodes=9": 2} {
		onTmpfs(t, "size=1m,"+inodes, func(t *testing.T, dir string) {
			s := mustOpen(t, dir)
			defer s.Close()
			mine, err := s.Allocate(request("me", other, dual)) // the root, 3 folders, a file, 2 links
			if err != nil {
				t.Errorf("%s: %v", inodes, err)
				return
			}
			_, err = s.Allocate(request("you", ranges("10.44.0.0/24", "fd44::/64")...))
			if !errors.Is(err, unix.ENOSPC) {
				t.Errorf("%d left: %v", left, err)
			}
			if got, err := s.List(); err != nil || len(got) != 1 || !got[0].same(mine) || len(files(t, s)) != 3 {
				t.Errorf("%d left: %+v, %v, %q", left, got, err, files(t, s))
			}
			if err := s.Release("me"); err != nil {
				t.Error(err)
			}
		})
	}
}

// full calls what needs space, and checks that mine is unchanged.
func full(t *testing.T, s *Store, mine Lease) {
	_, errOther := s.Allocate(request("you", small))
	_, errMove := s.Allocate(request("me", small))
	for _, err := range []error{errOther, errMove, s.SetDetail("me", make([]byte, 9000))} {
		if !errors.Is(err, unix.ENOSPC) {
			t.Errorf("error: %v", err)
		}
	}
	if got, err := s.Get("me"); err != nil || !got.same(mine) || string(got.Detail) != "of me" || len(files(t, s)) != 3 {
		t.Errorf("left %+v, %v, %q", got, err, files(t, s))
	}
	if err := s.Release("me"); err != nil || len(files(t, s)) != 0 {
		t.Errorf("release: %v, left %q", err, files(t, s))
	}
}

func TestReadOnly(t *testing.T) {
	onTmpfs(t, "size=64k", func(t *testing.T, dir string) {
		s := mustOpen(t, dir)
		defer s.Close()
		mine, err := s.Allocate(request("me", small))
		if err != nil {
			t.Error(err)
			return
		}
		if err := unix.Mount("", dir, "", unix.MS_REMOUNT|unix.MS_RDONLY, ""); err != nil {
			t.Error(err)
			return
		}
		_, errTake := s.Allocate(request("you", small))
		errRelease := s.Release("me")
		_, errCollect := s.Collect(func(Lease) bool { return false })
		_, errOpen := Open(Config{Dir: dir, BootID: "b"})
		for _, err := range []error{errTake, errRelease, errCollect, errOpen, s.SetDetail("me", nil)} {
			if !errors.Is(err, unix.EROFS) {
				t.Errorf("error: %v", err)
			}
		}
		if got, err := s.List(); err != nil || len(got) != 1 || !got[0].same(mine) {
			t.Errorf("left %+v, %v", got, err)
		}
	})
}
