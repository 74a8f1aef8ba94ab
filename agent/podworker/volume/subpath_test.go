package volume

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
)

// place calls SubPath for the container "c" at index 0.
func place(t *testing.T, v *Manager, p *v1.Pod, path, subPath string) (string, error) {
	t.Helper()
	return v.SubPath(t.Context(), p, "a", path, subPath, 0, "c", false)
}

// withVolume is a pod with an emptyDir volume that is set up.
func withVolume(t *testing.T) (v *Manager, p *v1.Pod, path string) {
	t.Helper()
	mountTmpfs(t, 0, "") // skips where mounting is not allowed
	root := t.TempDir()
	p = podWith("u", empty("a"))
	path = setUp(t, root, p, Input{}).Paths["a"]
	return New(root), p, path
}

func symlinks(t *testing.T, dir string, links map[string]string) {
	t.Helper()
	for name, target := range links {
		if err := os.Symlink(target, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
}

func same(t *testing.T, a, b string) bool {
	t.Helper()
	x, err := os.Stat(a)
	if err != nil {
		t.Fatal(err)
	}
	y, err := os.Stat(b)
	if err != nil {
		t.Fatal(err)
	}
	return os.SameFile(x, y)
}

func TestSubPath(t *testing.T) {
	v, p, path := withVolume(t)
	put(t, path+"/dir/file", "x")
	symlinks(t, path, map[string]string{
		"rel": "dir", "up": "dir/../dir/file", "abs": path + "/dir", "dangling": "none", "out": "../..", "etc": "/etc",
		"out-file": "/etc/passwd", "self": "self", "dangling-out": "../../none", "dangling-abs": "/none/x",
	})
	symlinks(t, path+"/dir", map[string]string{"back": "..", "far": "../../../../.."})
	for _, tc := range []struct{ subPath, want, fail string }{
		{"dir", "dir", ""},
		{"dir/", "dir", ""},
		{"./dir//file", "dir/file", ""},
		{"rel", "dir", ""},
		{"rel/file", "dir/file", ""},
		{"up", "dir/file", ""},
		{"abs/file", "dir/file", ""},
		{"dir/back/rel/file", "dir/file", ""},
		{".", ".", ""},
		{"new", "new", ""},
		{"new/er/est", "new/er/est", ""},
		{"rel/made", "dir/made", ""},
		{"dangling", "", "dangling symbolic link"},
		{"dangling/x", "", "dangling symbolic link"},
		{"dangling-out", "", "escapes the volume"},
		{"dangling-abs", "", "escapes the volume"},
		{"out", "", "escapes the volume"},
		{"out/x/y", "", "escapes the volume"},
		{"etc", "", "escapes the volume"},
		{"etc/passwd", "", "escapes the volume"},
		{"etc/tinylet-test", "", "escapes the volume"},
		{"out-file", "", "escapes the volume"},
		{"dir/far", "", "escapes the volume"},
		{"self", "", "too many levels"},
		{"dir/file/x", "", "not a directory"},
		{"", "", "empty"},
		{"/dir", "", "absolute"},
		{"../x", "", "'..'"},
		{"dir/../dir", "", "'..'"},
		{"a\x00b", "", "NUL byte"},
	} {
		t.Run(tc.subPath, func(t *testing.T) {
			got, err := place(t, v, p, path, tc.subPath)
			switch {
			case tc.fail != "":
				if err == nil || !strings.Contains(err.Error(), tc.fail) || !strings.Contains(err.Error(), "subPath") {
					t.Errorf("got %q, %v, want %q", got, err, tc.fail)
				}
				return
			case err != nil:
				t.Fatal(err)
			}
			if want := v.root + "/pods/u/volume-subpaths/a/c/0"; got != want {
				t.Errorf("got %s", got)
			}
			if !same(t, got, filepath.Join(path, tc.want)) {
				t.Errorf("%s is not %s", got, tc.want)
			}
		})
	}
	if _, err := os.Lstat("/etc/tinylet-test"); err == nil {
		t.Error("made outside")
	}
}

func TestSubPathIsIdempotent(t *testing.T) {
	v, p, path := withVolume(t)
	put(t, path+"/file", "x")
	mounts := func() int {
		t.Helper()
		all, err := v.mountsBelow(v.root)
		if err != nil {
			t.Fatal(err)
		}
		return len(all)
	}
	for range 3 {
		if _, err := place(t, v, p, path, "file"); err != nil || mounts() != 1 {
			t.Fatalf("%d mounts, %v", mounts(), err)
		}
	}
	// The file is replaced, by a directory at last; while it is in use, too.
	for i, remake := range []func() error{
		func() error {
			return errors.Join(os.Remove(path+"/file"), os.WriteFile(path+"/file", []byte("y"), 0o600))
		},
		func() error { return errors.Join(os.Remove(path+"/file"), os.Mkdir(path+"/file", 0o700)) },
		func() error { return errors.Join(os.Remove(path+"/file"), os.WriteFile(path+"/file", nil, 0o600)) },
	} {
		user, err := os.Open(v.root + "/pods/u/volume-subpaths/a/c/0")
		if err != nil {
			t.Fatal(err)
		}
		defer user.Close()
		if err := remake(); err != nil {
			t.Fatal(err)
		}
		got, err := place(t, v, p, path, "file")
		if err != nil || mounts() != 1 || !same(t, got, path+"/file") {
			t.Errorf("%d: %d mounts, %v", i, mounts(), err)
		}
	}
	// Another container and index have places of their own.
	if _, err := v.SubPath(t.Context(), p, "a", path, "file", 1, "d", false); err != nil || mounts() != 2 {
		t.Errorf("%d mounts, %v", mounts(), err)
	}
}

func TestSubPathReadOnly(t *testing.T) {
	v, p, path := withVolume(t)
	put(t, path+"/dir/file", "x")
	for range 2 {
		got, err := v.SubPath(t.Context(), p, "a", path, "dir", 0, "c", true)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(got+"/file", nil, 0o600); !errors.Is(err, unix.EROFS) {
			t.Errorf("written: %v", err)
		}
	}
	put(t, path+"/dir/file", "still writable")
	got, err := place(t, v, p, path, "dir")
	if err != nil {
		t.Fatal(err)
	}
	put(t, got+"/file", "now here too")
}

func TestSubPathModes(t *testing.T) {
	defer unix.Umask(unix.Umask(0o077))
	v, p, path := withVolume(t)
	if err := os.Chmod(path, os.ModeSetgid|os.ModeSticky|0o775); err != nil {
		t.Fatal(err)
	}
	got, err := place(t, v, p, path, "new/deep")
	if err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{got, path + "/new"} {
		if mode := modeOf(t, dir); mode != os.ModeDir|os.ModeSetgid|os.ModeSticky|0o775 {
			t.Errorf("%s: %v", dir, mode)
		}
	}
}

func TestSubPathRefusesNames(t *testing.T) {
	v, p, path := withVolume(t)
	for _, tc := range []struct {
		volume, container string
		index             int
	}{{"..", "c", 0}, {"a/b", "c", 0}, {"a", "../x", 0}, {"a", "", 0}, {"a", "c", -1}} {
		if got, err := v.SubPath(t.Context(), p, tc.volume, path, "x", tc.index, tc.container, false); err == nil {
			t.Errorf("%+v: got %s", tc, got)
		}
	}
	p.UID = "../u"
	if _, err := place(t, v, p, path, "x"); err == nil {
		t.Error("the UID passed")
	}
	p.UID = "u"
	if _, err := place(t, v, p, path+"/none", "x"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no volume: %v", err)
	}
}

// TestSubPathRace: a container swaps parts of the path while they are mounted.
// Whatever is found must be in the volume.
func TestSubPathRace(t *testing.T) {
	v, p, path := withVolume(t)
	outside := t.TempDir()
	put(t, outside+"/sub/secret", "outside")
	put(t, path+"/dir/sub/inside", "")
	put(t, path+"/spare/sub/inside", "")
	symlinks(t, path, map[string]string{"link": outside, "rel": "../../../../../../../.." + outside})
	ctx, cancel := context.WithCancel(t.Context())
	var hostile sync.WaitGroup
	swap := func(a, b string) {
		_ = unix.Renameat2(unix.AT_FDCWD, filepath.Join(path, a), unix.AT_FDCWD, filepath.Join(path, b), unix.RENAME_EXCHANGE)
	}
	for _, with := range []string{"link", "spare", "rel"} {
		hostile.Go(func() {
			for ctx.Err() == nil {
				swap("dir", with)
			}
		})
	}
	hostile.Go(func() {
		inside, err := os.OpenRoot(path)
		if err != nil {
			t.Error(err)
			return
		}
		defer inside.Close()
		for ctx.Err() == nil {
			_ = inside.RemoveAll("spare/new")
			_ = inside.Symlink(outside, "spare/new")
			_ = inside.Remove("spare/new")
		}
	})
	good, bad := 0, 0
	for end := time.Now().Add(time.Second); time.Now().Before(end); {
		for _, subPath := range []string{"dir/sub", "dir/new/er", "dir"} {
			got, err := place(t, v, p, path, subPath)
			if err != nil {
				bad++
				continue
			}
			good++
			for _, secret := range []string{"/secret", "/sub/secret"} {
				if _, err := os.Lstat(got + secret); err == nil {
					t.Fatalf("%s leads out of the volume", subPath)
				}
			}
		}
	}
	cancel()
	hostile.Wait()
	if good == 0 || bad == 0 {
		t.Errorf("no race: %d worked, %d did not", good, bad)
	}
	entries, err := os.ReadDir(outside)
	if err != nil || len(entries) != 1 {
		t.Errorf("made outside: %v, %v", entries, err)
	}
}

// TestSubPathGoesWithThePod: teardown removes subPath mounts that are in use, are
// nested, or whose directory is gone.
func TestSubPathGoesWithThePod(t *testing.T) {
	for name, end := range map[string]func(v *Manager) error{
		"teardown": func(v *Manager) error { return v.Teardown(context.Background(), "u") },
		"release":  func(v *Manager) error { return v.Release(context.Background(), "u") },
	} {
		t.Run(name, func(t *testing.T) {
			v, p, path := withVolume(t)
			got, err := place(t, v, p, path, "dir")
			if err != nil {
				t.Fatal(err)
			}
			file, err := v.SubPath(t.Context(), p, "a", path, "dir/x", 1, "c", false)
			if err != nil {
				t.Fatal(err)
			}
			put(t, got+"/used", "x")
			user, err := os.Open(got + "/used")
			if err != nil {
				t.Fatal(err)
			}
			defer user.Close()
			if err := unix.Mount("tmpfs", got+"/x", "tmpfs", 0, ""); err != nil {
				t.Fatal(err)
			}
			if err := errors.Join(unix.Unmount(got+"/x", 0), unix.Mount(file, path, "", unix.MS_BIND, ""), os.Remove(got+"/x")); err != nil {
				t.Fatal(err)
			}
			for range 2 {
				if err := end(v); err != nil {
					t.Fatal(err)
				}
			}
			if mounts, err := v.mountsBelow(v.root); err != nil || len(mounts) > 0 {
				t.Errorf("still mounted: %v, %v", mounts, err)
			}
			for _, dir := range []string{dirVolumes, dirSubPaths} {
				if _, err := os.Lstat(v.root + "/pods/u/" + dir); !errors.Is(err, os.ErrNotExist) {
					t.Errorf("still there: %s, %v", dir, err)
				}
			}
		})
	}
}

func FuzzSubPath(f *testing.F) {
	for _, path := range []string{"a", "a/b", "../a", "in/x", "out/x", "out", "in/../..", "/etc", "abs/passwd", "."} {
		f.Add(path)
	}
	top := f.TempDir()
	path := top + "/v"
	if err := errors.Join(os.MkdirAll(path+"/dir", 0o755), os.Symlink("dir", path+"/in"), os.Symlink("..", path+"/out"), os.Symlink("/etc", path+"/abs")); err != nil {
		f.Fatal(err)
	}
	root, err := unix.Open(path, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, subPath string) {
		if checkSubPath(subPath) != nil {
			return
		}
		if fd, err := findOrMake(t.Context(), root, path, subPath); err == nil {
			real, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", fd))
			if err != nil || real != path && !strings.HasPrefix(real, path+"/") {
				t.Errorf("%q leads to %q, %v", subPath, real, err)
			}
			_ = unix.Close(fd)
		}
		if entries, err := os.ReadDir(top); err != nil || len(entries) != 1 {
			t.Errorf("%q: made outside: %v, %v", subPath, entries, err)
		}
	})
}
