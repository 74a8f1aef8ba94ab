package agent

import (
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tinylet/tinylet/agent/config/evictionapi"
	"github.com/tinylet/tinylet/agent/container/criconfig"
	"github.com/tinylet/tinylet/agent/podworker/podstatus"
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

// Lost containers are looked for where the runtime puts them.
func TestRunningContainersHaveTheirCgroups(t *testing.T) {
	statuses := podstatus.NewStore()
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "a-b", Name: "p", Namespace: "default"}}
	statuses.SetPod(pod, v1.PodStatus{ContainerStatuses: []v1.ContainerStatus{
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
