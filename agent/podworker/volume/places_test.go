package volume

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"

	"github.com/tinylet/tinylet/agent/resource/diskusage"
)

func claiming(name, claim string) v1.Volume {
	return v1.Volume{Name: name, VolumeSource: v1.VolumeSource{PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: claim}}}
}

func TestPlaces(t *testing.T) {
	bound := func(claim string) string { return map[string]string{"c1": "pv1", "c2": "pv2", "gone": "pv9"}[claim] }
	of := func(name, plugin, dir string, flags ...string) diskusage.Volume {
		v := diskusage.Volume{Name: name, Place: diskusage.Place{Root: "ROOT/pods", Path: "u/volumes/kubernetes.io~" + plugin + "/" + dir}}
		for _, f := range flags {
			switch f {
			case "mounted":
				v.Mounted = true
			case "ephemeral":
				v.Ephemeral = true
			default:
				v.Claim = f
			}
		}
		return v
	}
	for _, tc := range []struct {
		name    string
		volumes []v1.Volume
		dirs    []string // local volumes that are set up
		bound   func(string) string
		want    []diskusage.Volume
	}{
		{"none", nil, nil, nil, []diskusage.Volume{}},
		{"kinds", []v1.Volume{
			empty("e"), memory("m", ""), {Name: "d"},
			{Name: "c", VolumeSource: v1.VolumeSource{ConfigMap: &v1.ConfigMapVolumeSource{}}},
			{Name: "s", VolumeSource: v1.VolumeSource{Secret: &v1.SecretVolumeSource{}}},
			{Name: "w", VolumeSource: v1.VolumeSource{DownwardAPI: &v1.DownwardAPIVolumeSource{}}},
			{Name: "p", VolumeSource: v1.VolumeSource{Projected: &v1.ProjectedVolumeSource{}}},
			{Name: "h", VolumeSource: v1.VolumeSource{HostPath: &v1.HostPathVolumeSource{Path: "/"}}},
			{Name: "i", VolumeSource: v1.VolumeSource{Image: &v1.ImageVolumeSource{}}},
			{Name: "n", VolumeSource: v1.VolumeSource{NFS: &v1.NFSVolumeSource{}}},
			empty("../x"),
		}, nil, nil, []diskusage.Volume{
			of("e", "empty-dir", "e", "ephemeral"), of("m", "empty-dir", "m", "mounted"),
			of("c", "configmap", "c", "ephemeral"), of("s", "secret", "s", "mounted"),
			of("w", "downward-api", "w", "mounted"), of("p", "projected", "p", "mounted"),
		}},
		{"one claim", []v1.Volume{claiming("a", "c1")}, []string{"pv1"}, nil, []diskusage.Volume{of("a", "local-volume", "pv1", "c1", "mounted")}},
		{"one claim twice", []v1.Volume{claiming("a", "c1"), claiming("b", "c1")}, []string{"pv1"}, nil, []diskusage.Volume{
			of("a", "local-volume", "pv1", "c1", "mounted"), of("b", "local-volume", "pv1", "c1", "mounted"),
		}},
		{"a claim of a hostPath", []v1.Volume{claiming("a", "c1")}, nil, bound, []diskusage.Volume{}},
		{"two claims", []v1.Volume{claiming("a", "c1"), claiming("b", "c2")}, []string{"pv1", "pv2"}, bound, []diskusage.Volume{
			of("a", "local-volume", "pv1", "c1", "mounted"), of("b", "local-volume", "pv2", "c2", "mounted"),
		}},
		{"two claims, one of them local", []v1.Volume{claiming("a", "c1"), claiming("b", "c2")}, []string{"pv2"}, bound, []diskusage.Volume{of("b", "local-volume", "pv2", "c2", "mounted")}},
		{"two claims without a known volume", []v1.Volume{claiming("a", "c1"), claiming("b", "c2")}, []string{"pv2"}, func(string) string { return "" }, []diskusage.Volume{}},
		{"bound to another", []v1.Volume{claiming("a", "gone"), claiming("b", "unknown")}, []string{"pv2"}, bound, []diskusage.Volume{}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			root := t.TempDir()
			for _, dir := range tc.dirs {
				if err := os.MkdirAll(root+"/pods/u/volumes/kubernetes.io~local-volume/"+dir, 0o750); err != nil {
					t.Fatal(err)
				}
			}
			for i := range tc.want {
				tc.want[i].Root = root + "/pods"
			}
			volumes, other := New(root).UsagePaths(podWith("u", tc.volumes...), tc.bound)
			if diff := cmp.Diff(tc.want, volumes); diff != "" {
				t.Error(diff)
			}
			if diff := cmp.Diff([]diskusage.Place{{Root: root + "/pods", Path: "u/etc-hosts"}, {Root: root + "/pods", Path: "u/containers"}}, other); diff != "" {
				t.Error(diff)
			}
		})
	}
	if volumes, other := New(t.TempDir()).UsagePaths(podWith("../u", empty("a")), nil); volumes != nil || other != nil {
		t.Errorf("a UID that leads elsewhere: %v, %v", volumes, other)
	}
}

// TestPlacesAreMeasured: what Setup makes is found where Places says.
func TestPlacesAreMeasured(t *testing.T) {
	root := t.TempDir()
	v, p := New(root), podWith("u", empty("a"))
	paths := setUp(t, root, p, Input{}).Paths
	put(t, paths["a"]+"/f", "some text")
	if _, err := v.WriteHosts(p.UID, []byte("127.0.0.1 localhost\n")); err != nil {
		t.Fatal(err)
	}
	volumes, other := v.UsagePaths(p, nil)
	for place, want := range map[diskusage.Place]uint64{volumes[0].Place: 2, other[0]: 1} {
		var w diskusage.Walk
		_, done, err := new(diskusage.Walker).Measure(&w, place, 100, func() bool { return false })
		if !done || err != nil || w.Usage().Inodes != want {
			t.Errorf("%+v: %v, %v, %+v", place, done, err, w.Usage())
		}
	}
}

// A container can write as much to its termination message as the disk holds:
// that counts for its pod.
func TestTerminationMessageCounts(t *testing.T) {
	v := New(t.TempDir())
	path, err := v.TerminationMessage("u", "c")
	if err != nil {
		t.Fatal(err)
	}
	p := &v1.Pod{}
	p.UID = "u"
	_, other := v.UsagePaths(p, nil)
	for _, place := range other {
		if strings.HasPrefix(path, filepath.Join(place.Root, place.Path)+"/") {
			return
		}
	}
	t.Errorf("%s is in none of the places that count: %v", path, other)
}
