package diskusage

import (
	"os"
	"strings"
	"testing"
)

const table = `22 1 179:2 / / rw,noatime shared:1 - ext4 /dev/root rw
24 22 0:22 / /tmp rw - tmpfs tmpfs rw
25 22 179:3 / /var/lib rw shared:2 - ext4 /dev/mmcblk0p3 rw
40 25 0:40 / /var/lib/kubelet/pods/u/volumes/kubernetes.io~projected/token rw shared:3 - tmpfs tmpfs rw,size=1024k
41 25 0:41 / /var/lib/kubelet/pods/u/volumes/kubernetes.io~local-volume/nas rw shared:4 master:2 propagate_from:1 - nfs4 nas:/x rw
42 25 0:42 / /var/lib/kubelet/pods/u/volumes/kubernetes.io~empty-dir/a/with\040space\011tab rw - fuse.sshfs x:/ rw
50 22 0:50 / /run/containerd/io.containerd.runtime.v2.task/k8s.io/c1/rootfs rw - overlay overlay rw,lowerdir=/l/2:/l/1,upperdir=/var/lib/containerd/s/7/fs,workdir=/var/lib/containerd/s/7/work
51 22 0:51 / /run/containerd/io.containerd.runtime.v2.task/k8s.io/c2/rootfs rw - overlay overlay ro,lowerdir=/l/2:/l/1
52 22 0:52 / /elsewhere rw - overlay overlay rw,upperdir=/u
53 24 0:53 / /tmp rw - nfs nas:/tmp rw
bad line
54 22 0:54 / relative rw - ext4 x rw
55 22 0:55 / /nothing rw - 
`

func tableOf(t *testing.T, text string) *mounts {
	t.Helper()
	path := t.TempDir() + "/mountinfo"
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	m, err := readMounts(path)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func TestMounts(t *testing.T) {
	volumes := "/var/lib/kubelet/pods/u/volumes/"
	// A line that is too long is passed over, and ends nothing.
	m := tableOf(t, "60 22 0:60 / /long rw - overlay overlay rw,lowerdir="+strings.Repeat("x", maxMountLine)+"\n"+table)
	for _, tc := range []struct {
		path, on     string
		local, below bool
	}{
		{"/", "/", true, true},
		{"/home/x", "/", true, false},
		{"/tmp", "/tmp", false, false}, // the one that is seen
		{"/tmpfile", "/", true, false},
		{"/var/lib", "/var/lib", true, true},
		{volumes + "kubernetes.io~projected/token", volumes + "kubernetes.io~projected/token", true, false},
		{volumes + "kubernetes.io~projected/tok", "/var/lib", true, false},
		{volumes + "kubernetes.io~local-volume/nas/sub", volumes + "kubernetes.io~local-volume/nas", false, false},
		{volumes + "kubernetes.io~empty-dir/a", "/var/lib", true, true},
		{volumes + "kubernetes.io~empty-dir/a/with space\ttab", volumes + "kubernetes.io~empty-dir/a/with space\ttab", false, false},
		{volumes + "kubernetes.io~empty-dir/b", "/var/lib", true, false},
	} {
		if got, ok := m.of(tc.path); !ok || got.path != tc.on || got.local != tc.local {
			t.Errorf("%s is on %+v, %v, want %s, %v", tc.path, got, ok, tc.on, tc.local)
		}
		if got := m.below(tc.path); got != tc.below {
			t.Errorf("below %s is something mounted: %v", tc.path, got)
		}
	}
	for id, want := range map[string]Place{"c1": {"/var/lib/containerd/s/7", "fs"}, "c2": {}, "c3": {}, "": {}} {
		if got, ok := m.upper(id); got != want || ok != (want != Place{}) {
			t.Errorf("the layer of %q is %+v, %v", id, got, ok)
		}
	}
	if _, ok := tableOf(t, "").of("/x"); ok {
		t.Error("an empty table has a mount")
	}
	if _, err := readMounts(t.TempDir() + "/none"); err == nil {
		t.Error("a table that is not there was read")
	}
}

func FuzzMounts(f *testing.F) {
	for line := range strings.Lines(table) {
		f.Add([]byte(line))
	}
	f.Fuzz(func(t *testing.T, line []byte) {
		m := &mounts{uppers: map[string]string{}}
		m.add(line)
		for _, p := range m.sorted {
			if !strings.HasPrefix(p.path, "/") {
				t.Errorf("mounted at %q", p.path)
			}
			m.of(p.path)
			m.below(p.path)
		}
		for id := range m.uppers {
			m.upper(id)
		}
	})
}

func TestEntries(t *testing.T) {
	for name, buf := range map[string][]byte{
		"empty": nil, "short": make([]byte, direntName), "no length": make([]byte, 64),
		"too long": append([]byte{16: 200, 18: 8, 19: 'a'}, make([]byte, 8)...), "no name": {16: 24, 23: 0},
		"no end": append([]byte{16: 24, 18: 8}, "aaaaa"...),
	} {
		if e, _, ok := nextEntry(buf); ok {
			t.Errorf("%s: got %q", name, e.name)
		}
	}
}
