package agent

import (
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tinylet/tinylet/agent/config/evictionapi"
	"github.com/tinylet/tinylet/agent/container/criconfig"
	"github.com/tinylet/tinylet/agent/container/reaper"
	"github.com/tinylet/tinylet/agent/node/nodeinfo/nodeinfotest"
	"github.com/tinylet/tinylet/agent/node/registration"
	"github.com/tinylet/tinylet/agent/podworker/podstatus"
	"github.com/tinylet/tinylet/cgroups"
)

// The reaper searches the cgroups in which the runtime puts containers.
func TestRunningContainersHaveTheirCgroups(t *testing.T) {
	cfg := newLab(t, t.TempDir()).cfg
	statuses := podstatus.NewStore()
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "a-b", Name: "p", Namespace: "default"}}
	statuses.SetPod(pod, v1.PodStatus{ContainerStatuses: []v1.ContainerStatus{
		{Name: "c", ContainerID: "containerd://1", State: v1.ContainerState{Running: &v1.ContainerStateRunning{}}},
		{Name: "d", ContainerID: "containerd://2"},
	}})
	a := &core{statuses: statuses, node: nodeinfotest.New(t, cfg, "")}
	if got := reaper.RunningContainers(a.statuses.List(), a.node.Peek); got != nil {
		t.Errorf("before the runtime has told its driver: %v", got)
	}
	for driver, want := range map[string]string{
		criconfig.DriverCgroupfs: "/kubepods/besteffort/poda-b/1",
		criconfig.DriverSystemd:  "/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-poda_b.slice/cri-containerd-1.scope",
	} {
		a.node = nodeinfotest.New(t, cfg, driver)
		if got := reaper.RunningContainers(a.statuses.List(), a.node.Peek); len(got) != 1 || got[0].Cgroup != want || got[0].ID != "1" {
			t.Errorf("%s: %v, want %s", driver, got, want)
		}
	}
}

// A node whose runtime needs a systemd that is not there is not ready, and
// says what to change.
func TestNoSystemdIsAProblem(t *testing.T) {
	cfg := newLab(t, t.TempDir()).cfg
	n := registration.NewCollector(registration.CollectorConfig{
		Config: cfg, ShuttingDown: func() bool { return false }, Problem: func() string { return "" },
		Pressures: func() evictionapi.Conditions { return evictionapi.Conditions{} },
	})
	for driver, want := range map[string]bool{criconfig.DriverCgroupfs: false, criconfig.DriverSystemd: !cgroups.SystemdRuns("")} {
		n.Node = nodeinfotest.New(t, cfg, driver)
		problems := strings.Join(n.Get(t.Context()).Problems, "\n")
		if strings.Contains(problems, "SystemdCgroup = false") != want {
			t.Errorf("%s: %s", driver, problems)
		}
	}
}
