package podsync

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tinylet/tinylet/agent/container/criconfig"
	"github.com/tinylet/tinylet/agent/podworker/podstatus"
	"github.com/tinylet/tinylet/cgroups"
)

// groupTree is a hierarchy in which the groups above the pods' are there, with
// the files that are written.
func groupTree(t *testing.T) (tree *cgroups.Tree, file func(path string) string) {
	t.Helper()
	root := t.TempDir()
	file = func(path string) string { return filepath.Join(root, path) }
	for _, dir := range []string{"", "kubepods", "kubepods/burstable", "kubepods/besteffort"} {
		if err := os.MkdirAll(file(dir), 0o755); err != nil {
			t.Fatal(err)
		}
		for name, content := range map[string]string{
			"cgroup.controllers": "cpu memory pids", "cgroup.subtree_control": "cpu memory pids", "cpu.weight": "", "pids.max": "",
			"cpu.max": "", "memory.max": "", "memory.min": "", "memory.low": "", "memory.current": "1000000\n",
		} {
			if err := os.WriteFile(file(filepath.Join(dir, name)), []byte(content), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	tree, err := cgroups.Open(root)
	if err != nil {
		t.Fatal(err)
	}
	return tree, file
}

func burstable(uid types.UID, cpu, memory string) *v1.Pod {
	p := &v1.Pod{Spec: v1.PodSpec{Containers: []v1.Container{{Name: "c"}}}}
	p.Name, p.Namespace, p.UID = string(uid), "default", uid
	p.Spec.Containers[0].Resources.Requests = v1.ResourceList{v1.ResourceCPU: resource.MustParse(cpu), v1.ResourceMemory: resource.MustParse(memory)}
	return p
}

// The groups follow the live pods, and are written only if that changes
// something.
func TestEnsureGroups(t *testing.T) {
	tree, file := groupTree(t)
	s := New(Config{Cgroups: tree, Statuses: podstatus.NewStore(), Log: slog.New(slog.DiscardHandler)})
	n := &criconfig.Node{MemoryAccounting: true, MemoryQoS: true, EnforcedAllocatable: v1.ResourceList{v1.ResourceMemory: resource.MustParse("64Mi")}}
	has := func(when, name, want string) {
		t.Helper()
		got, err := os.ReadFile(file(name))
		if err != nil || strings.TrimSpace(string(got)) != want {
			t.Errorf("%s: %s is %q (%v), want %q", when, name, got, err, want)
		}
	}
	ensure := func(gone types.UID) {
		t.Helper()
		if err := s.ensureGroups(n, gone); err != nil {
			t.Fatal(err)
		}
	}
	s.PeekNode = func() (*criconfig.Node, bool) { return n, true }
	for _, p := range []*v1.Pod{burstable("one", "500m", "1Mi"), burstable("two", "524m", "2Mi"), burstable("over", "9", "9Mi")} {
		st := v1.PodStatus{Phase: v1.PodPending}
		if p.UID == "over" {
			st.Phase = v1.PodSucceeded
		}
		s.Statuses.SetPod(p, st)
	}
	ensure("")
	has("two pods", "kubepods/burstable/memory.low", "3145728")
	has("two pods", "kubepods/memory.min", "3145728")
	has("two pods", "kubepods/memory.max", "67108864")
	has("two pods", "kubepods/burstable/cpu.weight", "40")

	if err := os.WriteFile(file("kubepods/cpu.weight"), []byte("by another"), 0o644); err != nil {
		t.Fatal(err)
	}
	ensure("")
	has("nothing changed", "kubepods/cpu.weight", "by another")
	// Another has taken the group's place, made for a pod's below it.
	other := file("kubepods/other")
	if err := os.CopyFS(other, os.DirFS(file("kubepods/besteffort"))); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(other, "cpu.weight"), []byte("100"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.RemoveAll(file("kubepods/besteffort")), os.Rename(other, file("kubepods/besteffort"))); err != nil {
		t.Fatal(err)
	}
	ensure("")
	has("made anew", "kubepods/besteffort/cpu.weight", "1")
	has("not made anew", "kubepods/cpu.weight", "by another")

	ensure("two")
	has("one is gone", "kubepods/burstable/memory.low", "1048576")
	has("one is gone", "kubepods/memory.min", "1048576")

	n.EnforcedAllocatable[v1.ResourceMemory] = resource.MustParse("900k") // less than is used
	ensure("two")
	has("a limit that would kill", "kubepods/memory.max", "67108864")
	if err := os.WriteFile(file("kubepods/memory.current"), []byte("800000\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	ensure("two")
	has("it can hold now", "kubepods/memory.max", "900000")
}
