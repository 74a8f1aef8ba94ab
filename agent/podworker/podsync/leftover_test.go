package podsync

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tinylet/tinylet/agent/container/criconfig"
	"github.com/tinylet/tinylet/agent/podworker/podstatus"
	"github.com/tinylet/tinylet/agent/podworker/volume"
	"github.com/tinylet/tinylet/cgroups"
)

func TestLeftovers(t *testing.T) {
	root, logs, groups := t.TempDir(), t.TempDir(), t.TempDir()
	for _, dir := range []string{
		filepath.Join(root, "pods", "with-folder"),
		filepath.Join(logs, "default_web_with-logs"),
		filepath.Join(logs, "somebody-else's"),
		filepath.Join(logs, "default_web_"),
		filepath.Join(groups, "kubepods", "podwith-group"),
		filepath.Join(groups, "kubepods", "burstable", "podwith-burst"),
		filepath.Join(groups, "kubepods", "besteffort", "other"),
	} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(groups, "cgroup.controllers"), []byte("cpu memory pids\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	tree, err := cgroups.Open(groups)
	if err != nil {
		t.Fatal(err)
	}
	known := false
	s := New(quiet(t.TempDir(), Config{
		Volumes: volume.New(root), Cgroups: tree, Statuses: podstatus.NewStore(),
		PeekNode: func() (*criconfig.Node, bool) { return &criconfig.Node{PodLogsDir: logs}, known },
	}))
	for _, row := range []struct {
		known bool
		want  []types.UID
	}{
		{false, []types.UID{"with-folder"}},
		{true, []types.UID{"with-burst", "with-folder", "with-group", "with-logs"}},
	} {
		known = row.known
		got, err := s.ListOrphans()
		if err != nil {
			t.Errorf("node known %t: %v", known, err)
		}
		slices.Sort(got)
		if !slices.Equal(got, row.want) {
			t.Errorf("node known %t: %q, want %q", known, got, row.want)
		}
	}
}

// Slices are found by their names, which do not distinguish an underscore of a
// UID from a dash: the slice of a known pod is not taken for another pod's.
func TestLeftSlices(t *testing.T) {
	groups := t.TempDir()
	for _, dir := range []string{
		"kubepods.slice/kubepods-poda_b.slice",
		"kubepods.slice/kubepods-burstable.slice/kubepods-burstable-podc.slice/cri-containerd-1.scope",
		"kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-podof_mine.slice",
		"kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-other.slice",
		"kubepods.slice/kubepods-besteffort.slice/podd",
	} {
		if err := os.MkdirAll(filepath.Join(groups, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(groups, "cgroup.controllers"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	tree, err := cgroups.Open(groups)
	if err != nil {
		t.Fatal(err)
	}
	known := podstatus.NewStore()
	known.SetPod(&v1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "of_mine"}}, v1.PodStatus{})
	s := New(quiet(t.TempDir(), Config{
		Volumes: volume.New(t.TempDir()), Cgroups: tree.NewSlices(t.TempDir()), Statuses: known,
		PeekNode: func() (*criconfig.Node, bool) {
			return &criconfig.Node{PodLogsDir: t.TempDir(), CgroupDriver: criconfig.DriverSystemd}, true
		},
	}))
	got, err := s.ListOrphans()
	slices.Sort(got)
	if want := []types.UID{"a-b", "c"}; err != nil || !slices.Equal(got, want) {
		t.Errorf("%q, %v, want %q", got, err, want)
	}
}
