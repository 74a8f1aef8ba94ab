package volume

import (
	"errors"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
)

func TestMemoryVolume(t *testing.T) {
	mountTmpfs(t, 0, "") // skips where mounting is not allowed
	root := t.TempDir()
	v := New(root)
	p := podWith("u", memory("m", "1Mi"), empty("d"))
	paths, err := pathsOf(v.Setup(t.Context(), p, Input{}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(paths["m"], unix.MNT_DETACH) })
	put(t, paths["m"]+"/kept", "x")

	var st unix.Statfs_t
	if err := unix.Statfs(paths["m"], &st); err != nil {
		t.Fatal(err)
	}
	if st.Type != unix.TMPFS_MAGIC || int64(st.Blocks)*int64(st.Bsize) != 1<<20 {
		t.Errorf("type %#x, %d blocks of %d", st.Type, st.Blocks, st.Bsize)
	}
	// Another agent, as after a restart, takes it over.
	if _, err := pathsOf(New(root).Setup(t.Context(), p, Input{})); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Lstat(paths["m"] + "/kept"); err != nil {
		t.Errorf("the volume did not survive: %v", err)
	}
	for name, want := range map[string]bool{"m": true, "d": false} {
		known, err := v.mounted(paths[name])
		old, errOld := v.inTable(paths[name]) // what an old kernel has
		if err != nil || errOld != nil || known != want || old != want {
			t.Errorf("%s is mounted: %v, %v, in the table: %v, %v", name, known, err, old, errOld)
		}
	}
	mounts, err := v.mountsBelow(root)
	if err != nil || len(mounts) != 1 || mounts[0].Mountpoint != paths["m"] || mounts[0].FSType != "tmpfs" {
		t.Errorf("mounted: %v, %v", mounts, err)
	}

	for range 2 {
		if err := v.Teardown(t.Context(), "u"); err != nil {
			t.Fatal(err)
		}
	}
	if mounts, err := v.mountsBelow(root); err != nil || len(mounts) > 0 {
		t.Errorf("still mounted: %v, %v", mounts, err)
	}
	if _, err := os.Lstat(root + "/pods/u"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("still there: %v", err)
	}
}

func TestTeardownBusy(t *testing.T) {
	mountTmpfs(t, 0, "") // skips where mounting is not allowed
	v := New(t.TempDir())
	paths, err := pathsOf(v.Setup(t.Context(), podWith("u", memory("m", ""), empty("d")), Input{}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(paths["m"], unix.MNT_DETACH) })
	put(t, paths["m"]+"/kept", "x")
	put(t, paths["d"]+"/gone", "x")
	f, err := os.Open(paths["m"] + "/kept")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()

	err = v.Teardown(t.Context(), "u")
	if !errors.Is(err, unix.EBUSY) || !errors.Is(err, errMounted) || !strings.Contains(err.Error(), paths["m"]) {
		t.Errorf("got %v, want the busy mount", err)
	}
	if _, err := os.Lstat(paths["m"] + "/kept"); err != nil {
		t.Errorf("deleted inside a mounted file system: %v", err)
	}
	if _, err := os.Lstat(paths["d"]); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the other volume is still there: %v", err)
	}
	f.Close()
	if err := v.Teardown(t.Context(), "u"); err != nil {
		t.Error(err)
	}
}

// TestTeardownBind: what is bind-mounted into a volume from elsewhere is
// unmounted, not deleted, even on the same file system and under a second mount.
func TestTeardownBind(t *testing.T) {
	mountTmpfs(t, 0, "") // skips where mounting is not allowed
	outside, root := t.TempDir(), t.TempDir()
	put(t, outside+"/precious", "x")
	v := New(root)
	paths, err := pathsOf(v.Setup(t.Context(), podWith("u", empty("a")), Input{}))
	if err != nil {
		t.Fatal(err)
	}
	at := paths["a"] + "/with space\\and\ttab"
	if err := os.Mkdir(at, 0o755); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := unix.Mount(outside, at, "", unix.MS_BIND, ""); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = unix.Unmount(at, unix.MNT_DETACH) })
	}
	// Deleting alone must stop at the mount.
	pods, err := os.Open(root + "/pods")
	if err != nil {
		t.Fatal(err)
	}
	defer pods.Close()
	if err := removeTree(t.Context(), pods, "u"); !errors.Is(err, errMounted) {
		t.Errorf("got %v, want errMounted", err)
	}
	if err := v.Teardown(t.Context(), "u"); err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(outside + "/precious"); err != nil {
		t.Errorf("deleted outside the pod: %v", err)
	}
	if _, err := os.Lstat(root + "/pods/u"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("still there: %v", err)
	}
}

func TestTmpfsOptions(t *testing.T) {
	for _, tc := range []struct {
		name  string
		size  string
		limit int64
		old   bool
		want  []string
	}{
		{"no bound", "", 0, false, []string{"noswap"}},
		{"the volume's", "1Mi", 0, false, []string{"size=1048576,noswap"}},
		{"the pod's is smaller", "1Mi", 1000, false, []string{"size=1000,noswap"}},
		{"the volume's is smaller", "10", 1000, false, []string{"size=10,noswap"}},
		{"larger than can be", "99E", 1000, false, []string{"size=1000,noswap"}},
		{"zero is none", "0", -1, false, []string{"noswap"}},
		{"an old kernel", "10", 0, true, []string{"size=10,noswap", "size=10"}},
		{"an old kernel, no bound", "", 0, true, []string{"noswap", ""}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			v := New(t.TempDir())
			v.MemoryLimit = func(*v1.Pod) int64 { return tc.limit }
			var got []string
			v.mount = func(_, target, fstype string, _ uintptr, data string) error {
				got = append(got, data)
				if tc.old && strings.Contains(data, "noswap") {
					return unix.EINVAL
				}
				return nil
			}
			if _, err := pathsOf(v.Setup(t.Context(), podWith("u", memory("m", tc.size)), Input{})); err != nil {
				t.Fatal(err)
			}
			if strings.Join(got, ";") != strings.Join(tc.want, ";") {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}

func TestMountFails(t *testing.T) {
	v := New(t.TempDir())
	v.mount = func(string, string, string, uintptr, string) error { return unix.EPERM }
	_, err := pathsOf(v.Setup(t.Context(), podWith("u", memory("m", "")), Input{}))
	if !errors.Is(err, unix.EPERM) || !strings.Contains(err.Error(), `volume "m": mount tmpfs`) {
		t.Errorf("got %v", err)
	}
}
