package volume

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/types"
)

// record is a kubelet's record of a CSI volume.
const record = `{"attachmentID":"csi-3f","driverName":"disk.example.com","nodeName":"n","specVolID":"pvc-1","volumeHandle":"h-1","volumeLifecycleMode":"Persistent"}`

// mountAt mounts a file system in memory, until the test ends.
func mountAt(t *testing.T, at string) {
	t.Helper()
	if err := os.MkdirAll(at, 0o750); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("tmpfs", at, "tmpfs", 0, "size=1m"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(at, unix.MNT_DETACH) })
}

// bindAt mounts a directory at another place, until the test ends.
func bindAt(t *testing.T, from, at string) {
	t.Helper()
	if err := os.MkdirAll(at, 0o750); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount(from, at, "", unix.MS_BIND, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(at, unix.MNT_DETACH) })
}

// kubeletTree makes what a kubelet has on the disk of a node with volumes of
// plugins, of the pod u.
func kubeletTree(t *testing.T, root string) {
	t.Helper()
	mountTmpfs(t, 0, "") // skips where mounting is not allowed
	staged := root + "/plugins/kubernetes.io/csi/disk.example.com/5e8f"
	put(t, staged+"/vol_data.json", record)
	mountAt(t, staged+"/globalmount")
	put(t, staged+"/globalmount/data", "x")
	scsi := root + "/plugins/kubernetes.io/iscsi/iface-default/10.0.0.1:3260-iqn.2026-01.com.example:d-lun-0"
	mountAt(t, scsi)
	put(t, scsi+"/data", "x")

	pod := root + "/pods/u"
	volumes := pod + "/volumes/"
	put(t, volumes+"kubernetes.io~csi/pvc-1/vol_data.json", record)
	bindAt(t, staged+"/globalmount", volumes+"kubernetes.io~csi/pvc-1/mount")
	put(t, volumes+"kubernetes.io~csi/pvc-2/vol_data.json", "{}") // published, or about to be
	for _, empty := range []string{"kubernetes.io~csi/pvc-2/mount", "kubernetes.io~csi/pvc-gone/mount", "kubernetes.io~fc"} {
		if err := os.MkdirAll(volumes+empty, 0o750); err != nil {
			t.Fatal(err)
		}
	}
	bindAt(t, scsi, volumes+"kubernetes.io~iscsi/pv-scsi")
	mountAt(t, volumes+"example.com~flex/pv-flex")
	if err := os.MkdirAll(pod+"/volumeDevices/kubernetes.io~csi", 0o750); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/dev/null", pod+"/volumeDevices/kubernetes.io~csi/pvc-block"); err != nil {
		t.Fatal(err)
	}
	put(t, staged+"/globalmount/sub/data", "x")
	bindAt(t, staged+"/globalmount/sub", pod+"/volume-subpaths/pvc-1/app/0")
	bindAt(t, scsi, pod+"/volume-subpaths/scsi-by-device/app/1")

	put(t, volumes+"kubernetes.io~empty-dir/own/sub/file", "x")
	bindAt(t, volumes+"kubernetes.io~empty-dir/own/sub", pod+"/volume-subpaths/own/app/0")
	mountAt(t, volumes+"kubernetes.io~empty-dir/memory")
	mountAt(t, volumes+"kubernetes.io~projected/kube-api-access-x")
	put(t, volumes+"kubernetes.io~projected/kube-api-access-x/token", "x")
	put(t, volumes+"kubernetes.io~configmap/c/..data/file", "x")
	put(t, pod+"/plugins/kubernetes.io~empty-dir/wrapped_kube-api-access-x/ready", "")
	put(t, pod+"/etc-hosts", "x")
	put(t, pod+"/containers/app/01234567", "x")
}

// foreignFiles are what must stay of kubeletTree; ownFiles what must go.
var (
	foreignFiles = []string{
		"pods/u/volumes/kubernetes.io~csi/pvc-1/vol_data.json", "pods/u/volumes/kubernetes.io~csi/pvc-1/mount/data",
		"pods/u/volumes/kubernetes.io~csi/pvc-2/vol_data.json", "pods/u/volumes/kubernetes.io~iscsi/pv-scsi/data",
		"pods/u/volumes/example.com~flex/pv-flex", "pods/u/volumeDevices/kubernetes.io~csi/pvc-block",
		"pods/u/volume-subpaths/pvc-1/app/0/data", "pods/u/volume-subpaths/scsi-by-device/app/1/data",
		"plugins/kubernetes.io/csi/disk.example.com/5e8f/vol_data.json",
		"plugins/kubernetes.io/csi/disk.example.com/5e8f/globalmount/data",
		"plugins/kubernetes.io/iscsi/iface-default/10.0.0.1:3260-iqn.2026-01.com.example:d-lun-0/data",
	}
	ownFiles = []string{
		"pods/u/volumes/kubernetes.io~empty-dir", "pods/u/volumes/kubernetes.io~projected", "pods/u/volumes/kubernetes.io~configmap",
		"pods/u/volumes/kubernetes.io~csi/pvc-gone", "pods/u/volumes/kubernetes.io~fc", "pods/u/volume-subpaths/own",
	}
)

func exist(t *testing.T, root string, want bool, names ...string) {
	t.Helper()
	for _, name := range names {
		if _, err := os.Lstat(filepath.Join(root, name)); (err == nil) != want {
			t.Errorf("%s: %v, want it there: %v", name, err, want)
		}
	}
}

// foreignMounts are those of the mount table that are not this agent's.
func foreignMounts(t *testing.T, v *Manager, root string) (out []string) {
	t.Helper()
	mounts, err := v.mountsBelow(root)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range mounts {
		rel := strings.TrimPrefix(m.Mountpoint, root+"/")
		if strings.HasPrefix(rel, "plugins/") || !strings.Contains(rel, "kubernetes.io~empty-dir") &&
			!strings.Contains(rel, "kubernetes.io~projected") && !strings.Contains(rel, "volume-subpaths/own/") {
			out = append(out, rel)
		}
	}
	return out
}

func TestForeignVolumesStay(t *testing.T) {
	root := t.TempDir()
	kubeletTree(t, root)
	busy, err := os.Open(root + "/pods/u/volumes/kubernetes.io~csi/pvc-1/mount/data")
	if err != nil {
		t.Fatal(err)
	}
	defer busy.Close()
	v := New(root)
	before := foreignMounts(t, v, root)
	if uids, err := v.Orphans(); err != nil || !slices.Equal(uids, []types.UID{"u"}) {
		t.Errorf("orphans before: %v, %v", uids, err)
	}

	if err := v.Release(t.Context(), "u"); err != nil {
		t.Fatal(err)
	}
	exist(t, root, true, foreignFiles...)
	exist(t, root, true, "pods/u/etc-hosts", "pods/u/containers/app/01234567")
	exist(t, root, false, ownFiles...)
	for range 2 { // the second time is that of the next agent
		if err := New(root).Teardown(t.Context(), "u"); err != nil {
			t.Fatal(err)
		}
		exist(t, root, true, foreignFiles...)
		exist(t, root, false, ownFiles...)
		exist(t, root, false, "pods/u/etc-hosts", "pods/u/containers", "pods/u/plugins")
	}
	if after := foreignMounts(t, v, root); !slices.Equal(before, after) {
		t.Errorf("foreign mounts were\n%q and are\n%q", before, after)
	}
	if uids, err := v.Orphans(); err != nil || len(uids) > 0 {
		t.Errorf("%v would be removed again and again: %v", uids, err)
	}
	found, err := v.Foreign("u")
	var told []string
	for i := range found {
		told = append(told, found[i].String())
	}
	want := []string{
		"example.com~flex/pv-flex", "kubernetes.io~csi/pvc-1 of driver disk.example.com", "kubernetes.io~csi/pvc-2 (not mounted)",
		"kubernetes.io~iscsi/pv-scsi", "kubernetes.io~csi/pvc-block (not mounted)", "scsi-by-device",
	}
	if err != nil || !slices.Equal(told, want) {
		t.Errorf("told %q, %v; want %q", told, err, want)
	}

	// Somebody takes them away: the directory goes too, the plugins' stays.
	busy.Close()
	for _, rel := range slices.Backward(before) {
		if strings.HasPrefix(rel, "pods/") {
			if err := unix.Unmount(filepath.Join(root, rel), 0); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, rel := range []string{"volumes/kubernetes.io~csi/pvc-1/vol_data.json", "volumes/kubernetes.io~csi/pvc-2/vol_data.json", "volumeDevices/kubernetes.io~csi/pvc-block"} {
		if err := os.Remove(filepath.Join(root, "pods/u", rel)); err != nil {
			t.Fatal(err)
		}
	}
	if uids, err := v.Orphans(); err != nil || !slices.Equal(uids, []types.UID{"u"}) {
		t.Errorf("orphans after: %v, %v", uids, err)
	}
	if err := v.Teardown(t.Context(), "u"); err != nil {
		t.Fatal(err)
	}
	exist(t, root, false, "pods/u")
	exist(t, root, true, foreignFiles[8:]...)
}

// TestForeignVolumesStayOverCuts: the agent is killed after each unmount, and
// in each one that fails.
func TestForeignVolumesStayOverCuts(t *testing.T) {
	for _, fails := range []bool{false, true} {
		for cut := range 6 {
			t.Run(fmt.Sprint(cut, fails), func(t *testing.T) {
				root := t.TempDir()
				kubeletTree(t, root)
				v := New(root)
				before := foreignMounts(t, v, root)
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				left := cut
				v.unmount = func(target string, flags int) error {
					if left--; left < 0 {
						cancel()
						if fails {
							return unix.EIO
						}
					}
					return unix.Unmount(target, flags)
				}
				_ = v.Release(ctx, "u") // it may have been cut
				exist(t, root, true, foreignFiles...)
				if err := New(root).Teardown(t.Context(), "u"); err != nil {
					t.Fatal(err)
				}
				exist(t, root, true, foreignFiles...)
				exist(t, root, false, ownFiles...)
				if after := foreignMounts(t, v, root); !slices.Equal(before, after) {
					t.Errorf("foreign mounts were\n%q and are\n%q", before, after)
				}
			})
		}
	}
}

// TestForeignVolumeBelowAMount: detaching a mount above a foreign volume would
// detach that volume too.
func TestForeignVolumeBelowAMount(t *testing.T) {
	mountTmpfs(t, 0, "") // skips where mounting is not allowed
	root := t.TempDir()
	mountAt(t, root+"/pods/u")
	mountAt(t, root+"/pods/u/volumes/kubernetes.io~csi/pvc-1/mount")
	v := New(root)
	v.unmount = func(target string, _ int) error {
		t.Errorf("%s is unmounted", target)
		return nil
	}
	if err := v.Teardown(t.Context(), "u"); err != nil {
		t.Error(err)
	}
	exist(t, root, true, "pods/u/volumes/kubernetes.io~csi/pvc-1/mount")
}

func TestNFSIsUnmountedPlainly(t *testing.T) {
	mountTmpfs(t, 0, "") // skips where mounting is not allowed
	root := t.TempDir()
	at := root + "/pods/u/volumes/kubernetes.io~nfs/share"
	mountAt(t, at)
	put(t, at+"/sub/data", "x")
	bindAt(t, at+"/sub", root+"/pods/u/volume-subpaths/share/app/0")
	put(t, root+"/pods/u/containers/app/x", "x")
	busy, err := os.Open(at + "/sub/data")
	if err != nil {
		t.Fatal(err)
	}
	defer busy.Close()
	v := New(root)
	v.unmount = func(target string, flags int) error {
		if flags != unix.UMOUNT_NOFOLLOW {
			t.Errorf("unmount %s with flags %#x", target, flags)
		}
		return unix.Unmount(target, flags)
	}
	// The pod ends all the same.
	if err := v.Release(t.Context(), "u"); err != nil {
		t.Fatal(err)
	}
	exist(t, root, true, "pods/u/volumes/kubernetes.io~nfs/share/sub/data")
	exist(t, root, false, "pods/u/volume-subpaths/share/app/0/data")
	if err := v.Teardown(t.Context(), "u"); err != nil {
		t.Fatal(err)
	}
	v.UnmountIdle(time.Minute)
	if uids, err := v.Orphans(); err != nil || len(uids) > 0 {
		t.Errorf("orphans while it is busy: %v, %v", uids, err)
	}
	if all, err := v.AllForeign(); err != nil || len(all) != 1 || all[0].Plugin != dirNFS {
		t.Errorf("foreign: %v, %v", all, err)
	}
	busy.Close()
	v.UnmountIdle(time.Minute)
	if uids, err := v.Orphans(); err != nil || !slices.Equal(uids, []types.UID{"u"}) {
		t.Errorf("orphans: %v, %v", uids, err)
	}
	if err := v.Teardown(t.Context(), "u"); err != nil {
		t.Fatal(err)
	}
	exist(t, root, false, "pods/u")
}

// TestNFSWithoutAServer: the unmount never returns. The pod ends, and no second
// one is begun.
func TestNFSWithoutAServer(t *testing.T) {
	mountTmpfs(t, 0, "") // skips where mounting is not allowed
	root := t.TempDir()
	mountAt(t, root+"/pods/u/volumes/kubernetes.io~nfs/share")
	put(t, root+"/pods/u/etc-hosts", "x")
	v := New(root)
	v.serverTimeout = time.Millisecond
	var calls atomic.Int32
	hang := make(chan struct{})
	defer close(hang)
	v.unmount = func(string, int) error {
		calls.Add(1)
		<-hang
		return unix.EBUSY
	}
	if err := v.Release(t.Context(), "u"); err != nil {
		t.Fatal(err)
	}
	if err := v.Teardown(t.Context(), "u"); err != nil {
		t.Fatal(err)
	}
	v.UnmountIdle(0)
	exist(t, root, false, "pods/u/etc-hosts")
	exist(t, root, true, "pods/u/volumes/kubernetes.io~nfs/share")
	if n := calls.Load(); n > 1 {
		t.Errorf("%d unmounts at once", n)
	}
}

// TestNFSOfARunningPodStays: UnmountIdle handles only pods that have nothing left
// but foreign volumes.
func TestNFSOfARunningPodStays(t *testing.T) {
	mountTmpfs(t, 0, "") // skips where mounting is not allowed
	root := t.TempDir()
	mountAt(t, root+"/pods/u/volumes/kubernetes.io~nfs/share")
	put(t, root+"/pods/u/etc-hosts", "x")
	v := New(root)
	v.UnmountIdle(time.Minute)
	if all, err := v.AllForeign(); err != nil || len(all) != 1 || !all[0].Mounted {
		t.Errorf("foreign: %v, %v", all, err)
	}
}

func TestForeignLeft(t *testing.T) {
	const staged = "/plugins/kubernetes.io/csi/disk.example.com/5e8f"
	for _, tt := range []struct {
		name string
		make func(t *testing.T, root string)
		want bool
	}{
		{"nothing", func(*testing.T, string) {}, false},
		{"no volumes", func(t *testing.T, root string) { put(t, root+"/pods/u/volumes/kubernetes.io~empty-dir/d/x", "") }, false},
		{"empty directories", func(t *testing.T, root string) {
			for _, dir := range []string{"/pods/u/volumes/kubernetes.io~csi/pvc", staged} {
				if err := os.MkdirAll(root+dir, 0o750); err != nil {
					t.Fatal(err)
				}
			}
		}, false},
		{"a plugin's socket", func(t *testing.T, root string) { put(t, root+"/plugins/disk.example.com/csi.sock", "") }, false},
		{"published", func(t *testing.T, root string) {
			put(t, root+"/pods/u/volumes/kubernetes.io~csi/p/vol_data.json", "{}")
		}, true},
		{"staged", func(t *testing.T, root string) { put(t, root+staged+"/vol_data.json", "{}") }, true},
		{"a staged device", func(t *testing.T, root string) {
			put(t, root+"/plugins/kubernetes.io/csi/volumeDevices/pv/data/vol_data.json", "{}")
		}, true},
		{"mounted", func(t *testing.T, root string) {
			put(t, root+"/pods/u/x", "")
			put(t, root+"/table", fmt.Sprintf("1 2 8:1 / %s/plugins/kubernetes.io/fc/50060e-lun-0 rw - ext4 /dev/sda rw\n", root))
		}, true},
	} {
		root := t.TempDir()
		put(t, root+"/table", "")
		tt.make(t, root)
		if tt.name == "mounted" {
			put(t, root+"/plugins/kubernetes.io/fc/50060e-lun-0/x", "")
		}
		v := New(root)
		v.mountinfo = root + "/table"
		if got, err := v.HasForeign(); err != nil || got != tt.want {
			t.Errorf("%s: %v, %v", tt.name, got, err)
		}
	}
	v := New(t.TempDir())
	put(t, v.root+"/pods/u/x", "")
	v.mountinfo = "/none"
	if left, err := v.HasForeign(); err == nil {
		t.Errorf("without a mount table: %v", left)
	}
	v = New(t.TempDir())
	put(t, v.root+"/pods", "not a directory")
	put(t, v.root+"/table", "")
	v.mountinfo = v.root + "/table"
	if left, err := v.HasForeign(); err == nil {
		t.Errorf("the pods' directories cannot be listed: %v", left)
	}
}

// TestFindForeignInACapturedTree: the paths of its mount table are not those of
// this system.
func TestFindForeignInACapturedTree(t *testing.T) {
	captured := t.TempDir()
	const mount = "/var/lib/kubelet/pods/u/volumes/kubernetes.io~csi/pvc-1/mount"
	if err := os.MkdirAll(captured+mount, 0o750); err != nil {
		t.Fatal(err)
	}
	put(t, captured+"/proc/self/mountinfo", "1 2 8:1 / "+mount+" rw - ext4 /dev/sda rw\n")
	found, err := FindForeign(captured, "/var/lib/kubelet", captured+"/proc/self/mountinfo")
	if err != nil || len(found) != 1 || !found[0].Mounted || found[0].Pod != "u" || found[0].Name != "pvc-1" {
		t.Errorf("got %v, %v", found, err)
	}
	if found, err := FindForeign(t.TempDir(), "/var/lib/kubelet", "/none"); err != nil || len(found) > 0 {
		t.Errorf("without pods: %v, %v", found, err)
	}
}

// TestForeignVolumesHostile: symbolic links and files that are no directories are
// not followed.
func TestForeignVolumesHostile(t *testing.T) {
	root, outside := t.TempDir(), t.TempDir()
	put(t, outside+"/kubernetes.io~csi/pvc/precious", "x")
	put(t, root+"/pods/file", "x")
	if err := os.MkdirAll(root+"/pods/u", 0o750); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(outside, root+"/pods/u/volumes"); err != nil {
		t.Fatal(err)
	}
	v := New(root)
	if found, err := v.AllForeign(); err != nil || len(found) > 0 {
		t.Errorf("got %v, %v", found, err)
	}
	if err := v.Teardown(t.Context(), "u"); err != nil {
		t.Fatal(err)
	}
	exist(t, root, false, "pods/u")
	exist(t, outside, true, "kubernetes.io~csi/pvc/precious")
	deep := root + "/pods/d/volumes/kubernetes.io~csi/pvc" + strings.Repeat("/d", 2*maxDepth)
	if err := os.MkdirAll(deep, fs.FileMode(0o750)); err != nil {
		t.Fatal(err)
	}
	if found, err := v.Foreign("d"); err != nil || len(found) != 1 {
		t.Errorf("too deep to know: %v, %v", found, err)
	}
}
