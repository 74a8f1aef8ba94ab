package agent

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tinylet/tinylet/agent/config/evictionapi"
	"github.com/tinylet/tinylet/agent/container/criconfig"
	"github.com/tinylet/tinylet/agent/podworker/podstatus"
	"github.com/tinylet/tinylet/cgroups"
)

func told(t *testing.T) *nodeFacts {
	t.Helper()
	l := newLab(t, t.TempDir())
	facts, err := newNodeFacts(l.cfg, l.runtime, nil)
	if err != nil {
		t.Fatal(err)
	}
	return facts
}

// Without systemd, a runtime that leaves cgroups to it gives pods that say so.
func TestCgroupDriver(t *testing.T) {
	root := t.TempDir()
	for _, name := range []string{"cgroup.controllers", "cgroup.subtree_control"} {
		if err := os.WriteFile(filepath.Join(root, name), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	tree, err := cgroups.Open(root)
	if err != nil {
		t.Fatal(err)
	}
	facts := &nodeFacts{}
	d := newCgroupDriver(tree, facts)
	d.slices = tree.NewSlices(t.TempDir())
	t.Cleanup(d.slices.Close)
	const path = "/kubepods.slice"
	for _, driver := range []string{criconfig.DriverSystemd, criconfig.DriverCgroupfs} {
		facts.told.Store(&runtimeFacts{cgroupDriver: driver})
		err := d.Ensure(path, cgroups.Resources{})
		if bySystemd := driver == criconfig.DriverSystemd; bySystemd != errors.Is(err, cgroups.ErrNoSystemd) || bySystemd == d.Exists(path) {
			t.Errorf("%s: %v, exists %t", driver, err, d.Exists(path))
		}
	}
	if names, err := d.List("/"); err != nil || len(names) != 1 {
		t.Errorf("listed %q, %v", names, err)
	}
	if err := errors.Join(d.Kill("/gone"), d.Delete(path)); err != nil || d.Exists(path) {
		t.Errorf("taken down: %v", err)
	}
}

// Lost containers are looked for where the runtime puts them.
func TestRunningContainersHaveTheirCgroups(t *testing.T) {
	statuses := podstatus.NewStore()
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "a-b", Name: "p", Namespace: "default"}}
	statuses.Submit(pod, v1.PodStatus{ContainerStatuses: []v1.ContainerStatus{
		{Name: "c", ContainerID: "containerd://1", State: v1.ContainerState{Running: &v1.ContainerStateRunning{}}},
		{Name: "d", ContainerID: "containerd://2"},
	}})
	v := &view{statuses: statuses, node: told(t)}
	if got := v.running(); got != nil {
		t.Errorf("before the runtime has told its driver: %v", got)
	}
	for driver, want := range map[string]string{
		criconfig.DriverCgroupfs: "/kubepods/besteffort/poda-b/1",
		criconfig.DriverSystemd:  "/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-poda_b.slice/cri-containerd-1.scope",
	} {
		v.node.told.Store(&runtimeFacts{cgroupDriver: driver})
		if got := v.running(); len(got) != 1 || got[0].Cgroup != want || got[0].ID != "1" {
			t.Errorf("%s: %v, want %s", driver, got, want)
		}
	}
}

// A node whose runtime needs a systemd that is not there is not ready, and
// says what to change.
func TestNoSystemdIsAProblem(t *testing.T) {
	n := &nodeInputs{
		facts: told(t), shuttingDown: func() bool { return false }, problem: func() string { return "" },
		under: func() evictionapi.Conditions { return evictionapi.Conditions{} },
	}
	n.cfg = n.facts.cfg
	for _, row := range []struct {
		driver  string
		systemd bool
		want    bool
	}{
		{criconfig.DriverCgroupfs, false, false},
		{criconfig.DriverSystemd, true, false},
		{criconfig.DriverSystemd, false, true},
	} {
		n.facts.systemd = row.systemd
		n.facts.told.Store(&runtimeFacts{cgroupDriver: row.driver})
		problems := strings.Join(n.get(t.Context()).Problems, "\n")
		if strings.Contains(problems, "SystemdCgroup = false") != row.want {
			t.Errorf("%+v: %s", row, problems)
		}
	}
}
