package volume

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
)

func podWith(uid string, volumes ...v1.Volume) *v1.Pod {
	p := &v1.Pod{Spec: v1.PodSpec{Volumes: volumes}}
	p.UID = types.UID(uid)
	return p
}

func empty(name string) v1.Volume {
	return v1.Volume{Name: name, VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}}}
}

func memory(name, size string) v1.Volume {
	v := empty(name)
	v.EmptyDir.Medium = v1.StorageMediumMemory
	if size != "" {
		q := resource.MustParse(size)
		v.EmptyDir.SizeLimit = &q
	}
	return v
}

// pathsOf is the paths of a Result.
func pathsOf(r *Result, err error) (map[string]string, error) {
	if err != nil {
		return nil, err
	}
	return r.Paths, nil
}

func put(t *testing.T, path, content string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}

func modeOf(t *testing.T, path string) fs.FileMode {
	t.Helper()
	info, err := os.Lstat(path)
	if err != nil {
		t.Fatal(err)
	}
	return info.Mode()
}

func TestSetupEmptyDir(t *testing.T) {
	defer unix.Umask(unix.Umask(0o077))
	root := t.TempDir()
	v := New(root)
	p := podWith("u1", empty("a"), empty("b"))
	want := map[string]string{
		"a": root + "/pods/u1/volumes/kubernetes.io~empty-dir/a",
		"b": root + "/pods/u1/volumes/kubernetes.io~empty-dir/b",
	}
	for range 2 {
		got, err := pathsOf(v.Setup(t.Context(), p, Input{}))
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatal(diff)
		}
		put(t, got["a"]+"/kept", "x")
	}
	if got := modeOf(t, want["b"]); got != fs.ModeDir|0o777 {
		t.Errorf("mode %v", got)
	}
	if got := modeOf(t, root+"/pods/u1").Perm(); got&0o007 != 0 {
		t.Errorf("others may enter the pod's directory: %v", got)
	}
}

func TestSetupKeepsPermissions(t *testing.T) {
	v := New(t.TempDir())
	p := podWith("u", empty("a"))
	paths, err := pathsOf(v.Setup(t.Context(), p, Input{}))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(paths["a"], 0o2750); err != nil {
		t.Fatal(err)
	}
	if _, err := pathsOf(v.Setup(t.Context(), p, Input{})); err != nil {
		t.Fatal(err)
	}
	if got := modeOf(t, paths["a"]).Perm(); got != 0o750 {
		t.Errorf("a container's mode became %v", got)
	}
	// Cut off after it was made, before it got its mode.
	if err := os.Chmod(paths["a"], 0); err != nil {
		t.Fatal(err)
	}
	if _, err := pathsOf(v.Setup(t.Context(), p, Input{})); err != nil {
		t.Fatal(err)
	}
	if got := modeOf(t, paths["a"]).Perm(); got != 0o777 {
		t.Errorf("a half-made directory has mode %v", got)
	}
}

func TestSetupRefusals(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	put(t, file, "")
	for _, tc := range []struct {
		name   string
		uid    string
		volume v1.Volume
		want   []string
	}{
		{"UID with a slash", "../x", empty("a"), []string{`volume "a"`, `"../x"`}},
		{"UID dots", "..", empty("a"), []string{`".."`}},
		{"no UID", "", empty("a"), []string{`""`}},
		{"name with a slash", "u", empty("a/b"), []string{`"a/b"`}},
		{"name dots", "u", empty(".."), []string{`".."`}},
		{"name NUL", "u", empty("a\x00b"), []string{`"a\x00b"`}},
		{"name long", "u", empty(strings.Repeat("a", 256)), []string{"not a valid directory name"}},
		{"medium", "u", v1.Volume{Name: "a", VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{Medium: "Disk"}}}, []string{"emptyDir.medium", "Disk"}},
		{"huge pages of nobody", "u", v1.Volume{Name: "a", VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{Medium: "HugePages"}}}, []string{"emptyDir.medium", "HugePages"}},
		{"other source", "u", v1.Volume{Name: "a", VolumeSource: v1.VolumeSource{NFS: &v1.NFSVolumeSource{}}}, []string{"kind nfs"}},
		{"relative hostPath", "u", host("x", v1.HostPathUnset), []string{"hostPath.path"}},
		{"hostPath with ..", "u", host("/a/../b", v1.HostPathUnset), []string{"hostPath.path"}},
		{"not a directory", "u", host(file, v1.HostPathDirectory), []string{"hostPath type check failed", "is a file, the type is Directory"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := pathsOf(New(t.TempDir()).Setup(t.Context(), podWith(tc.uid, tc.volume), Input{}))
			if err == nil {
				t.Fatal("passed")
			}
			for _, want := range tc.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%q does not say %q", err, want)
				}
			}
		})
	}
}

func TestSetupTwoOfOneName(t *testing.T) {
	if _, err := pathsOf(New(t.TempDir()).Setup(t.Context(), podWith("u", empty("a"), empty("a")), Input{})); err == nil {
		t.Error("passed")
	}
}

func TestSetupFollowsNoLinkOut(t *testing.T) {
	for _, at := range []string{"u", "u/volumes", "u/volumes/kubernetes.io~empty-dir", "u/volumes/kubernetes.io~empty-dir/a"} {
		t.Run(at, func(t *testing.T) {
			outside, root := t.TempDir(), t.TempDir()
			link := filepath.Join(root, "pods", at)
			if err := os.MkdirAll(filepath.Dir(link), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.Symlink(outside, link); err != nil {
				t.Fatal(err)
			}
			if _, err := pathsOf(New(root).Setup(t.Context(), podWith("u", empty("a")), Input{})); err == nil {
				t.Error("passed")
			}
			if entries, err := os.ReadDir(outside); err != nil || len(entries) > 0 {
				t.Errorf("wrote outside: %v, %v", entries, err)
			}
		})
	}
}

func TestSetupEnds(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := pathsOf(New(t.TempDir()).Setup(ctx, podWith("u", empty("a")), Input{})); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

func TestAdvice(t *testing.T) {
	v := New("/var/lib/kubelet")
	for errno, want := range map[error]string{
		unix.ENOSPC: "free space", unix.EDQUOT: "free space",
		unix.EROFS: "--root-dir", unix.EPERM: "root", unix.EIO: "",
	} {
		err := v.withRemedy(&fs.PathError{Op: "mkdir", Path: "/x", Err: errno})
		if !errors.Is(err, errno) || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}

func TestReadOnlyDisk(t *testing.T) {
	root := mountTmpfs(t, unix.MS_RDONLY, "")
	_, err := pathsOf(New(root).Setup(t.Context(), podWith("u", empty("a")), Input{}))
	if !errors.Is(err, unix.EROFS) || !strings.Contains(err.Error(), "--root-dir") {
		t.Errorf("got %v, want what to do about a read-only file system", err)
	}
}

func TestFullDisk(t *testing.T) {
	root := mountTmpfs(t, 0, "nr_inodes=3")
	_, err := pathsOf(New(root).Setup(t.Context(), podWith("u", empty("a")), Input{}))
	if !errors.Is(err, unix.ENOSPC) || !strings.Contains(err.Error(), "free space") {
		t.Errorf("got %v, want what to do about a full file system", err)
	}
}

func TestOrphans(t *testing.T) {
	root := t.TempDir()
	v := New(root)
	if uids, err := v.Orphans(); err != nil || len(uids) > 0 {
		t.Errorf("without a directory: %v, %v", uids, err)
	}
	for _, uid := range []string{"b", "a"} {
		if _, err := pathsOf(v.Setup(t.Context(), podWith(uid, empty("x")), Input{})); err != nil {
			t.Fatal(err)
		}
	}
	put(t, root+"/pods/file", "")
	uids, err := v.Orphans()
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]types.UID{"a", "b"}, uids); diff != "" {
		t.Error(diff)
	}
}

// mountTmpfs mounts a tmpfs for the duration of the test.
func mountTmpfs(t *testing.T, flags uintptr, data string) string {
	t.Helper()
	dir := t.TempDir()
	err := unix.Mount("tmpfs", dir, "tmpfs", flags, data)
	if errors.Is(err, unix.EPERM) {
		t.Skip("mounting needs root")
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return dir
}
