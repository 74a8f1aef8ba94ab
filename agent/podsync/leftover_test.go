package podsync

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"github.com/tinylet/tinylet/agent/criconfig"
	"github.com/tinylet/tinylet/agent/volume"
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
	s := &Syncer{Config: Config{
		Volumes: volume.New(root), Cgroups: tree,
		PeekNode: func() (*criconfig.Node, bool) { return &criconfig.Node{PodLogsDir: logs}, known },
	}}
	for _, row := range []struct {
		known bool
		want  []types.UID
	}{
		{false, []types.UID{"with-folder"}},
		{true, []types.UID{"with-burst", "with-folder", "with-group", "with-logs"}},
	} {
		known = row.known
		got, err := s.Leftovers()
		if err != nil {
			t.Errorf("node known %t: %v", known, err)
		}
		slices.Sort(got)
		if !slices.Equal(got, row.want) {
			t.Errorf("node known %t: %q, want %q", known, got, row.want)
		}
	}
}
