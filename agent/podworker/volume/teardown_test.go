package volume

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/types"
)

func TestTeardownWithoutSetup(t *testing.T) {
	root := t.TempDir()
	v := New(filepath.Join(root, "none"))
	if err := v.Teardown(t.Context(), "u"); err != nil {
		t.Errorf("no root directory: %v", err)
	}
	put(t, root+"/pods/other/x", "")
	if err := New(root).Teardown(t.Context(), "u"); err != nil {
		t.Errorf("no such pod: %v", err)
	}
	for _, uid := range []types.UID{"", ".", "..", "../pods/other", "other/x"} {
		if err := New(root).Teardown(t.Context(), uid); err == nil {
			t.Errorf("UID %q passed", uid)
		}
	}
	if _, err := os.Lstat(root + "/pods/other/x"); err != nil {
		t.Error(err)
	}
}

// TestTeardownHostile: what a container can leave in its volume.
func TestTeardownHostile(t *testing.T) {
	outside, root := t.TempDir(), t.TempDir()
	put(t, outside+"/precious", "x")
	v := New(root)
	paths, err := pathsOf(v.Setup(t.Context(), podWith("u", empty("a")), Input{}))
	if err != nil {
		t.Fatal(err)
	}
	dir := paths["a"]
	for name, target := range map[string]string{
		"abs": outside, "rel": "../../../../../..", "file": outside + "/precious",
		"self": "self", "nowhere": "/none", "proc": "/proc/self/root", "\n\xff\t": "/",
	} {
		if err := os.Symlink(target, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := unix.Mkfifo(dir+"/fifo", 0o666); err != nil {
		t.Fatal(err)
	}
	put(t, dir+"/closed/x", "")
	for _, name := range []string{"closed/x", "closed"} {
		if err := os.Chmod(filepath.Join(dir, name), 0); err != nil {
			t.Fatal(err)
		}
	}
	if os.Geteuid() != 0 { // the agent is root, for whom permissions are no bar
		if err := os.Chmod(dir+"/closed", 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Link(outside+"/precious", dir+"/hard"); err != nil {
		t.Fatal(err)
	}
	if err := v.Teardown(t.Context(), "u"); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Lstat(root + "/pods/u"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("still there: %v", err)
	}
	if got, err := os.ReadFile(outside + "/precious"); err != nil || string(got) != "x" {
		t.Errorf("outside: %q, %v", got, err)
	}
}

func TestTeardownLinkAsPod(t *testing.T) {
	outside, root := t.TempDir(), t.TempDir()
	put(t, outside+"/precious", "x")
	if err := os.Mkdir(root+"/pods", 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(outside, root+"/pods/u"); err != nil {
		t.Fatal(err)
	}
	if err := New(root).Teardown(t.Context(), "u"); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Lstat(root + "/pods/u"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the link is still there: %v", err)
	}
	if _, err := os.Lstat(outside + "/precious"); err != nil {
		t.Error(err)
	}
}

// TestTeardownThroughLink: the root directory itself may be a link, to a
// data partition.
func TestTeardownThroughLink(t *testing.T) {
	data, link := t.TempDir(), filepath.Join(t.TempDir(), "kubelet")
	if err := os.Symlink(data, link); err != nil {
		t.Fatal(err)
	}
	v := New(link)
	table := filepath.Join(t.TempDir(), "mountinfo")
	put(t, table, fmt.Sprintf("1 2 0:1 / %s/pods/u/volumes/kubernetes.io~empty-dir/m rw - tmpfs tmpfs rw\n", data))
	v.mountinfo = table
	var got []string
	v.unmount = func(target string, flags int) error {
		got = append(got, target)
		put(t, table, "")
		return nil
	}
	if _, err := pathsOf(v.Setup(t.Context(), podWith("u", empty("m")), Input{})); err != nil {
		t.Fatal(err)
	}
	if err := v.Teardown(t.Context(), "u"); err != nil {
		t.Fatal(err)
	}
	if want := data + "/pods/u/volumes/kubernetes.io~empty-dir/m"; len(got) != 1 || got[0] != want {
		t.Errorf("unmounted %q, want %q", got, want)
	}
	if entries, err := os.ReadDir(data + "/pods"); err != nil || len(entries) > 0 {
		t.Errorf("left: %v, %v", entries, err)
	}
}

// TestTeardownDeep: more levels than one may open at once, with files on
// each, and names that the removal uses itself.
func TestTeardownDeep(t *testing.T) {
	root := t.TempDir()
	v := New(root)
	paths, err := pathsOf(v.Setup(t.Context(), podWith("u", empty("a")), Input{}))
	if err != nil {
		t.Fatal(err)
	}
	put(t, root+"/pods/u/.deep-1", "")
	put(t, root+"/pods/u/.deep-2/x", "")
	// One level at a time: the whole path would be longer than a path may be.
	at, err := os.OpenRoot(paths["a"])
	if err != nil {
		t.Fatal(err)
	}
	for range 800 {
		if err := at.WriteFile("f", nil, 0o644); err != nil {
			t.Fatal(err)
		}
		if err := at.Mkdir("ddd", 0o755); err != nil {
			t.Fatal(err)
		}
		next, err := at.OpenRoot("ddd")
		if err != nil {
			t.Fatal(err)
		}
		at.Close()
		at = next
	}
	at.Close()
	var before unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &before); err != nil {
		t.Fatal(err)
	}
	few := before
	few.Cur = 128
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &few); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &before); err != nil {
			t.Error(err)
		}
	}()
	if err := v.Teardown(t.Context(), "u"); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Lstat(root + "/pods/u"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("still there: %v", err)
	}
}

func TestTeardownWide(t *testing.T) {
	root := t.TempDir()
	for i := range 3 * batch {
		put(t, fmt.Sprintf("%s/pods/u/d/%d", root, i), "")
	}
	if err := New(root).Teardown(t.Context(), "u"); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Lstat(root + "/pods/u"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("still there: %v", err)
	}
}

func TestTeardownEnds(t *testing.T) {
	root := t.TempDir()
	put(t, root+"/pods/u/x", "")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := New(root).Teardown(ctx, "u"); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

func TestUnmountGivesUp(t *testing.T) {
	root := t.TempDir()
	put(t, root+"/pods/u/x", "")
	v := New(root)
	v.mountinfo = filepath.Join(t.TempDir(), "mountinfo")
	put(t, v.mountinfo, fmt.Sprintf("1 2 0:1 / %s/pods/u/x rw - tmpfs tmpfs rw\n", root))
	v.unmount = func(string, int) error { return nil }
	if err := v.Teardown(t.Context(), "u"); err == nil || !strings.Contains(err.Error(), "still mounted") {
		t.Errorf("got %v", err)
	}
	v.unmount = func(string, int) error { return unix.EPERM }
	if err := v.Teardown(t.Context(), "u"); !errors.Is(err, unix.EPERM) {
		t.Errorf("got %v", err)
	}
}

func TestParseMounts(t *testing.T) {
	raw := "22 27 0:21 / /proc rw,relatime - proc proc rw\n" +
		"30 27 0:30 / /a rw shared:1 master:2 - ext4 /dev/vda rw\n" +
		"31 30 0:31 / /a/b\\040c\\134d rw - tmpfs tmpfs rw,size=10k\n" +
		"32 30 0:31 / /ab rw - tmpfs tmpfs rw\n" +
		"33 30 0:31 /x /a/last rw - fuse.x none rw\n" +
		"34 30 0:32 / /a/none rw - tmpfs  rw\n"
	got, err := parseMounts(strings.NewReader(raw), "/a")
	want := []string{"/a ext4 30", "/a/b c\\d tmpfs 31", "/a/last fuse.x 31", "/a/none tmpfs 32"}
	var texts []string
	for _, m := range got {
		texts = append(texts, fmt.Sprintf("%s %s %d", m.Mountpoint, m.FSType, deviceOf(m)))
	}
	if err != nil || !slices.Equal(texts, want) {
		t.Errorf("got %q, %v, want %q", texts, err, want)
	}
	if all, err := parseMounts(strings.NewReader(raw), "/"); err != nil || len(all) != 6 {
		t.Errorf("below /: %v, %v", all, err)
	}
	for _, line := range []string{"broken", "34 - ", "", "35 30 0:31 / /a/\\9z rw - t t rw"} {
		if got, err := parseMounts(strings.NewReader(raw+line+"\n"+raw), "/a"); err == nil {
			t.Errorf("a table with %q: %v", line, got)
		}
	}
}

func FuzzParseMounts(f *testing.F) {
	f.Add([]byte("31 30 0:31 / /a/b\\040c rw - tmpfs tmpfs rw\n"), "/a")
	f.Fuzz(func(t *testing.T, raw []byte, dir string) {
		found, _ := parseMounts(bytes.NewReader(raw), dir)
		for _, m := range found {
			if !strings.HasPrefix(m.Mountpoint, strings.TrimSuffix(dir, "/")) {
				t.Errorf("%q is not below %q", m.Mountpoint, dir)
			}
		}
	})
}
