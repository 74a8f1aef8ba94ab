package volume

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// claimed is a pod with one claim, which is bound to a volume of a local path.
func claimed(uid types.UID, path string) (*v1.Pod, *fakeObjects) {
	p := podWith(string(uid), v1.Volume{Name: "v", VolumeSource: v1.VolumeSource{
		PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: "c"},
	}})
	p.Namespace = "ns"
	o := &fakeObjects{claims: map[string]*v1.PersistentVolumeClaim{"c": {}}, volumes: map[string]*v1.PersistentVolume{"pv": {}}}
	c, pv := o.claims["c"], o.volumes["pv"]
	c.Name, c.Namespace, c.Spec.VolumeName = "c", "ns", "pv"
	pv.Name, pv.Spec.Local = "pv", &v1.LocalVolumeSource{Path: path}
	return p, o
}

func TestLocalVolume(t *testing.T) {
	mountTmpfs(t, 0, "") // skips where mounting is not allowed
	root, data := t.TempDir(), t.TempDir()
	put(t, data+"/kept", "x")
	p, o := claimed("u", data)
	o.volumes["pv"].Annotations = map[string]string{gidAnnotation: "1234"}
	o.volumes["pv"].Spec.MountOptions = []string{"noexec"}
	r := setUp(t, root, p, Input{Objects: o})
	path := r.Paths["v"]
	if path != root+"/pods/u/volumes/kubernetes.io~local-volume/pv" || r.ReadOnly["v"] || len(r.Groups) != 1 || r.Groups[0] != 1234 {
		t.Errorf("got %+v", r)
	}
	if !same(t, path, data) {
		t.Error("it is not the local directory")
	}
	put(t, path+"/new", "y")
	// Another agent takes it over; a kill may have come before the options.
	if err := unix.Mount("", path, "", unix.MS_REMOUNT|unix.MS_BIND, ""); err != nil {
		t.Fatal(err)
	}
	p.Spec.Volumes[0].PersistentVolumeClaim.ReadOnly = true
	r, err := New(root).Setup(t.Context(), p, Input{Objects: o})
	if err != nil || !r.ReadOnly["v"] {
		t.Fatalf("got %+v, %v", r, err)
	}
	var st unix.Statfs_t
	if err := unix.Statfs(path, &st); err != nil || st.Flags&(unix.MS_RDONLY|unix.MS_NOEXEC) != unix.MS_RDONLY|unix.MS_NOEXEC {
		t.Errorf("flags %#x, %v", st.Flags, err)
	}
	if mounts, err := New(root).mountsBelow(root); err != nil || len(mounts) != 1 {
		t.Errorf("mounted %v, %v", mounts, err)
	}
	// Its end is no end of the data, even while somebody works there.
	user, err := os.Open(path + "/kept")
	if err != nil {
		t.Fatal(err)
	}
	defer user.Close()
	if err := New(root).Teardown(t.Context(), "u"); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"kept": "x", "new": "y"} {
		if got, err := os.ReadFile(filepath.Join(data, name)); err != nil || string(got) != want {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
	if _, err := os.Lstat(root + "/pods/u"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("still there: %v", err)
	}
}

func TestClaimErrors(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	put(t, file, "")
	for _, tc := range []struct {
		name   string
		change func(o *fakeObjects, c *v1.PersistentVolumeClaim, pv *v1.PersistentVolume)
		want   string
	}{
		{"no claim", func(o *fakeObjects, _ *v1.PersistentVolumeClaim, _ *v1.PersistentVolume) { o.claims = nil }, `persistentvolumeclaim "c" not found in namespace "ns"`},
		{"no volume", func(o *fakeObjects, _ *v1.PersistentVolumeClaim, _ *v1.PersistentVolume) { o.volumes = nil }, `persistentvolume "pv" not found`},
		{"unbound", func(_ *fakeObjects, c *v1.PersistentVolumeClaim, _ *v1.PersistentVolume) { c.Spec.VolumeName = "" }, `persistentvolumeclaim "c" in namespace "ns" is not bound`},
		{"pending", func(_ *fakeObjects, c *v1.PersistentVolumeClaim, _ *v1.PersistentVolume) {
			c.Status.Phase = v1.ClaimPending
		}, "is not bound, but Pending"},
		{"deleted", func(_ *fakeObjects, c *v1.PersistentVolumeClaim, _ *v1.PersistentVolume) {
			c.DeletionTimestamp = &metav1.Time{}
		}, "is being deleted"},
		{"another's", func(_ *fakeObjects, _ *v1.PersistentVolumeClaim, pv *v1.PersistentVolume) {
			pv.Spec.ClaimRef = &v1.ObjectReference{Name: "x", Namespace: "ns"}
		}, `"pv" is not bound to the persistentvolumeclaim "c"`},
		{"another's of the name", func(_ *fakeObjects, c *v1.PersistentVolumeClaim, pv *v1.PersistentVolume) {
			c.UID, pv.Spec.ClaimRef = "1", &v1.ObjectReference{Name: "c", Namespace: "ns", UID: "2"}
		}, "is not bound to"},
		{"not yet the claim's", func(_ *fakeObjects, c *v1.PersistentVolumeClaim, _ *v1.PersistentVolume) { c.UID = "1" }, "is not bound to"},
		{"block mode", func(_ *fakeObjects, _ *v1.PersistentVolumeClaim, pv *v1.PersistentVolume) {
			pv.Spec.VolumeMode = new(v1.PersistentVolumeBlock)
		}, "volumeMode Block are not supported"},
		{"another kind", func(_ *fakeObjects, _ *v1.PersistentVolumeClaim, pv *v1.PersistentVolume) {
			pv.Spec.PersistentVolumeSource = v1.PersistentVolumeSource{NFS: &v1.NFSVolumeSource{}}
		}, "bound to nfs are not supported"},
		{"a file", func(_ *fakeObjects, _ *v1.PersistentVolumeClaim, pv *v1.PersistentVolume) { pv.Spec.Local.Path = file }, "is not a directory"},
		{"nothing", func(_ *fakeObjects, _ *v1.PersistentVolumeClaim, pv *v1.PersistentVolume) {
			pv.Spec.Local.Path = "/none"
		}, "no such file"},
		{"a way back", func(_ *fakeObjects, _ *v1.PersistentVolumeClaim, pv *v1.PersistentVolume) {
			pv.Spec.Local.Path = "/a/../b"
		}, "must not contain '..'"},
		{"a mount option", func(_ *fakeObjects, _ *v1.PersistentVolumeClaim, pv *v1.PersistentVolume) {
			pv.Spec.MountOptions = []string{"suid,exec"}
		}, `mount option "suid,exec"`},
		{"a bad name", func(o *fakeObjects, c *v1.PersistentVolumeClaim, pv *v1.PersistentVolume) {
			c.Spec.VolumeName, pv.Name, o.volumes[".."] = "..", "..", pv
		}, `".." is not a valid directory name`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p, o := claimed("u", t.TempDir())
			tc.change(o, o.claims["c"], o.volumes["pv"])
			_, err := New(t.TempDir()).Setup(t.Context(), p, Input{Objects: o})
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %v, want %q", err, tc.want)
			}
		})
	}
}

func TestHostPathClaim(t *testing.T) {
	data := t.TempDir()
	p, o := claimed("u", "")
	pv, c := o.volumes["pv"], o.claims["c"]
	pv.Spec.PersistentVolumeSource = v1.PersistentVolumeSource{HostPath: &v1.HostPathVolumeSource{Path: data + "/new", Type: new(v1.HostPathDirectoryOrCreate)}}
	c.UID, c.Status.Phase = "1", v1.ClaimBound
	pv.Spec.ClaimRef = &v1.ObjectReference{Name: "c", Namespace: "ns", UID: "1"}
	r, err := New(t.TempDir()).Setup(t.Context(), p, Input{Objects: o})
	if err != nil || r.Paths["v"] != data+"/new" {
		t.Errorf("got %+v, %v", r, err)
	}
	if _, err := os.Stat(data + "/new"); err != nil {
		t.Error(err)
	}
}

// ownerOf is a file's user, group and mode.
func ownerOf(t *testing.T, path string) string {
	t.Helper()
	var st unix.Stat_t
	if err := unix.Lstat(path, &st); err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("%d:%d %o", st.Uid, st.Gid, st.Mode&0o7777)
}

func TestLocalVolumeOwnership(t *testing.T) {
	mountTmpfs(t, 0, "") // skips where mounting is not allowed
	outside, mounted := t.TempDir(), t.TempDir()
	put(t, outside+"/precious", "")
	put(t, mounted+"/other", "")
	if err := os.Chmod(mounted+"/other", 0o600); err != nil {
		t.Fatal(err)
	}
	root, data := t.TempDir(), t.TempDir()
	put(t, data+"/dir/file", "")
	put(t, data+"/dir/setuid", "")
	put(t, data+"/mount/x", "")
	symlinks(t, data, map[string]string{"out": outside + "/precious", "dir-out": outside})
	if err := errors.Join(os.Chmod(data+"/dir/setuid", os.ModeSetuid|0o711), os.Chmod(data+"/dir/file", 0o600), os.Chmod(data+"/dir", 0o700), os.Chmod(data, 0o700)); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount(mounted, data+"/mount", "", unix.MS_BIND, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(data+"/mount", unix.MNT_DETACH) })
	p, o := claimed("u", data)
	p.Spec.SecurityContext = &v1.PodSecurityContext{FSGroup: new(int64(4321))}
	setUp(t, root, p, Input{Objects: o})
	for path, want := range map[string]string{
		"": "0:4321 2770", "dir": "0:4321 2770", "dir/file": "0:4321 660", "dir/setuid": "0:4321 4771", "out": "0:4321 777",
		"mount/other": "0:0 600",
	} {
		if got := ownerOf(t, filepath.Join(data, path)); got != want {
			t.Errorf("%q: got %s, want %s", path, got, want)
		}
	}
	if got := ownerOf(t, outside+"/precious"); got != "0:0 644" {
		t.Errorf("followed a link: %s", got)
	}
	// Another pod uses it at the same time: it must not take the files away.
	q, o := claimed("w", data)
	q.Spec.SecurityContext = &v1.PodSecurityContext{FSGroup: new(int64(1))}
	setUp(t, root, q, Input{Objects: o})
	if got := ownerOf(t, data+"/dir/file"); got != "0:4321 660" {
		t.Errorf("taken away: %s", got)
	}
}

func TestOwnershipPolicies(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("changing owners needs root")
	}
	for _, tc := range []struct {
		name         string
		group        int
		mode         uint32
		rootMismatch bool
		want         string
	}{
		{"always", 77, 0o2770, false, "0:77 660"},
		{"the root is right", 77, 0o2770, true, "0:0 600"},
		{"the root is more than right", 77, 0o2777, true, "0:0 600"},
		{"no set-group-ID", 77, 0o770, true, "0:77 660"},
		{"a bit is missing", 77, 0o2750, true, "0:77 660"},
		{"another group", 78, 0o2770, true, "0:77 660"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			dir := t.TempDir()
			put(t, dir+"/file", "")
			if err := errors.Join(unix.Chmod(dir+"/file", 0o600), unix.Chown(dir, -1, tc.group), unix.Chmod(dir, tc.mode)); err != nil {
				t.Fatal(err)
			}
			fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY, 0)
			if err != nil {
				t.Fatal(err)
			}
			defer unix.Close(fd)
			if err := setTreeGroup(t.Context(), fd, 77, tc.rootMismatch); err != nil {
				t.Fatal(err)
			}
			if got := ownerOf(t, dir+"/file"); got != tc.want {
				t.Errorf("got %s, want %s", got, tc.want)
			}
			before := inodes(t, dir)
			if err := setTreeGroup(t.Context(), fd, 77, tc.rootMismatch); err != nil {
				t.Fatal(err)
			}
			if fmt.Sprint(before) != fmt.Sprint(inodes(t, dir)) {
				t.Error("a second time wrote")
			}
		})
	}
}

func TestEmptyDirOwnership(t *testing.T) {
	mountTmpfs(t, 0, "") // skips where mounting is not allowed
	defer unix.Umask(unix.Umask(0o077))
	for _, tc := range []struct {
		name   string
		medium v1.StorageMedium
		mode   *int32
		group  *int64
		want   string
	}{
		{"disk", "", nil, nil, "0:0 777"},
		{"disk, mode", "", new(int32(0o1750)), nil, "0:0 1750"},
		{"disk, mode 0", "", new(int32(0)), nil, "0:0 0"},
		{"disk, group", "", nil, new(int64(5)), "0:5 2777"},
		{"disk, both", "", new(int32(0o700)), new(int64(5)), "0:5 2770"},
		{"memory", "Memory", nil, nil, "0:0 1777"},
		{"memory, mode", "Memory", new(int32(0o750)), nil, "0:0 750"},
		{"memory, group", "Memory", nil, new(int64(5)), "0:5 3777"},
		{"memory, both", "Memory", new(int32(0o1700)), new(int64(5)), "0:5 3770"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			volume := empty("a")
			volume.EmptyDir.Medium, volume.EmptyDir.Mode = tc.medium, tc.mode
			p := podWith("u", volume)
			p.Spec.SecurityContext = &v1.PodSecurityContext{FSGroup: tc.group}
			root := t.TempDir()
			path := setUp(t, root, p, Input{}).Paths["a"]
			if got := ownerOf(t, path); got != tc.want {
				t.Errorf("got %s, want %s", got, tc.want)
			}
			if err := os.Chmod(path, 0o711); err != nil {
				t.Fatal(err)
			}
			if _, err := New(root).Setup(t.Context(), p, Input{}); err != nil {
				t.Fatal(err)
			}
			if got := modeOf(t, path).Perm(); got != 0o711 {
				t.Errorf("a container's mode became %v", got)
			}
		})
	}
	for _, mode := range []int32{-1, 0o2000, 0o7777} {
		volume := empty("a")
		volume.EmptyDir.Mode = &mode
		if _, err := New(t.TempDir()).Setup(t.Context(), podWith("u", volume), Input{}); err == nil {
			t.Errorf("mode %#o passed", mode)
		}
	}
}

func TestHugePages(t *testing.T) {
	asks := func(sizes ...string) *v1.Pod {
		p := podWith("u")
		for _, size := range sizes {
			c := v1.Container{}
			c.Resources.Requests = v1.ResourceList{v1.ResourceName(v1.ResourceHugePagesPrefix + size): {}, "cpu": {}}
			p.Spec.Containers = append(p.Spec.Containers, c)
		}
		return p
	}
	for _, tc := range []struct {
		medium     v1.StorageMedium
		pod        *v1.Pod
		want, fail string
	}{
		{"HugePages", asks("2Mi"), "pagesize=2097152", ""},
		{"HugePages", asks("64Ki", "64Ki"), "pagesize=65536", ""},
		{"HugePages", asks("64Ki", "2Mi"), "", "name the size"},
		{"HugePages", asks(), "", "no container requests"},
		{"HugePages-1Gi", asks("2Mi", "1Gi"), "pagesize=1073741824", ""},
		{"HugePages-1Gi", asks("2Mi"), "", "no container requests"},
		{"HugePages-x", asks("x"), "", "HugePages-x"},
	} {
		v := New(t.TempDir())
		var got string
		v.mount = func(_, _, fstype string, _ uintptr, data string) error {
			got = data
			if fstype != "hugetlbfs" {
				t.Errorf("mounted %s", fstype)
			}
			return nil
		}
		volume := empty("a")
		volume.EmptyDir.Medium = tc.medium
		tc.pod.Spec.Volumes = []v1.Volume{volume}
		_, err := v.Setup(context.Background(), tc.pod, Input{})
		if tc.fail != "" {
			if err == nil || !strings.Contains(err.Error(), tc.fail) {
				t.Errorf("%s: got %v, want %q", tc.medium, err, tc.fail)
			}
		} else if err != nil || got != tc.want {
			t.Errorf("%s: got %q, %v, want %q", tc.medium, got, err, tc.want)
		}
	}
}

// TestOwnershipRace: a container swaps files while their group is changed.
func TestOwnershipRace(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("changing owners needs root")
	}
	outside, dir := t.TempDir(), t.TempDir()
	put(t, outside+"/sub/secret", "")
	if err := os.Chmod(outside+"/sub/secret", 0o600); err != nil {
		t.Fatal(err)
	}
	put(t, dir+"/a/sub/secret", "")
	put(t, dir+"/f", "")
	symlinks(t, dir, map[string]string{"link": outside, "link-f": outside + "/sub/secret"})
	fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	ctx, cancel := context.WithCancel(t.Context())
	var swaps atomic.Int64
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for ; ctx.Err() == nil; swaps.Add(1) {
			_ = unix.Renameat2(fd, "a", fd, "link", unix.RENAME_EXCHANGE)
			_ = unix.Renameat2(fd, "f", fd, "link-f", unix.RENAME_EXCHANGE)
		}
	}()
	end := time.Now().Add(500 * time.Millisecond)
	for rounds := 0; rounds < 100 || swaps.Load() < 100 || time.Now().Before(end); rounds++ {
		if err := setTreeGroup(t.Context(), fd, 1+rounds%2, false); err != nil {
			t.Error(err)
			break
		}
	}
	cancel()
	<-ended
	for path, want := range map[string]string{outside: "0:0 755", outside + "/sub": "0:0 755", outside + "/sub/secret": "0:0 600"} {
		if got := ownerOf(t, path); got != want {
			t.Errorf("%s: got %s, want %s", path, got, want)
		}
	}
}

// Two volumes of one claim share a mount, which is read-only only if both are.
func TestClaimInTwoVolumes(t *testing.T) {
	mountTmpfs(t, 0, "") // skips where mounting is not allowed
	for _, readOnly := range [][2]bool{{false, true}, {true, false}, {true, true}} {
		p, o := claimed("u", t.TempDir())
		second := *p.Spec.Volumes[0].DeepCopy()
		second.Name = "w"
		p.Spec.Volumes = append(p.Spec.Volumes, second)
		for i, r := range readOnly {
			p.Spec.Volumes[i].PersistentVolumeClaim.ReadOnly = r
		}
		r := setUp(t, t.TempDir(), p, Input{Objects: o})
		if got := [2]bool{r.ReadOnly["v"], r.ReadOnly["w"]}; got != readOnly || r.Paths["v"] != r.Paths["w"] {
			t.Errorf("volumes %v read-only: %+v", readOnly, r)
		}
		if got, want := isReadOnly(r.Paths["v"]), readOnly[0] && readOnly[1]; got != want {
			t.Errorf("volumes %v read-only: mount read-only %t, want %t", readOnly, got, want)
		}
	}
}
