package agent

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/tinylet/tinylet/agent/container/fake"
	"github.com/tinylet/tinylet/agent/node/nodeinfo"
	"github.com/tinylet/tinylet/agent/resource/cpumanager"
	"github.com/tinylet/tinylet/agent/resource/cpumanager/policy"
)

// alone is a Guaranteed pod that asks for so many CPUs.
func alone(t *testing.T, name, amount string) *v1.Pod {
	p := shell(t, name, "Always", "sleep infinity")
	list := v1.ResourceList{v1.ResourceCPU: resource.MustParse(amount), v1.ResourceMemory: resource.MustParse("8Mi")}
	p.Spec.Containers[0].Resources = v1.ResourceRequirements{Requests: list, Limits: list}
	return p
}

// fourCPUs is a machine with the static policy that has CPU 0 reserved.
func fourCPUs(t *testing.T, l *lab, dir string) {
	t.Helper()
	root := filepath.Join(dir, "cpu")
	if err := os.MkdirAll(root, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(root, "online"), []byte("0-3\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	l.prepare = func(a *agent) {
		a.syncer.AdmitNode = func() *nodeinfo.Admission { return nil } // this machine may have fewer
		k := l.cfg.Kubelet
		k.CPUManagerPolicy, k.ReservedSystemCPUs = policy.Static, "0"
		m, err := cpumanager.New(cpumanager.Config{
			Kubelet: &k, Root: root, File: filepath.Join(dir, "cpus.json"), Runtime: l.runtime, Node: a.syncer.PeekNode,
			Pods: a.statuses.List, Notify: a.statuses.Notify, Events: a.events, Log: a.syncer.Log,
		})
		if err != nil {
			t.Fatal(err)
		}
		a.cpus, a.syncer.CPUs = m, m
	}
}

// cpusOf are cpuset.cpus, and a quota where there is one, of what runs.
func (l *lab) cpusOf() map[string]string {
	out := map[string]string{}
	for name, id := range l.running() {
		for _, c := range l.runtime.AllContainers() {
			if c.GetId() == id {
				out[name] = c.GetResources().GetLinux().GetCpusetCpus()
				if c.GetResources().GetLinux().GetCpuQuota() > 0 {
					out[name] += " with a quota"
				}
			}
		}
	}
	return out
}

func (l *lab) wantCPUs(what string, want map[string]string) {
	l.t.Helper()
	l.settle(10 * time.Second)
	if diff := cmp.Diff(want, l.cpusOf()); diff != "" {
		l.t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

func TestCPUsOfTheirOwn(t *testing.T) {
	dir := t.TempDir()
	bubble(t, func(t *testing.T, l *lab) {
		fourCPUs(t, l, dir)
		shared, limited, one := shell(t, "shared", "Always", "sleep infinity"), alone(t, "limited", "500m"), alone(t, "one", "1")
		two, last := alone(t, "two", "2"), alone(t, "last", "1")
		l.want(shared, limited)
		l.start()
		l.wantCPUs("all share", map[string]string{"shared-board/c0": "0-3", "limited-board/c0": "0-3 with a quota"})
		l.want(shared, limited, one)
		three := map[string]string{"shared-board/c0": "0,2-3", "limited-board/c0": "0,2-3 with a quota", "one-board/c0": "1"}
		l.wantCPUs("one is alone", three)
		for _, c := range l.runtime.Calls("UpdateContainerResources") {
			if c.Subject == l.running()["one-board/c0"] {
				t.Error("who is alone was made elsewhere, and moved")
			}
		}

		l.runtime.ExitContainer(l.running()["one-board/c0"], 1)
		l.wantCPUs("it has them after a restart of its container", three)

		l.kill()
		if err := os.Truncate(filepath.Join(dir, "cpus.json"), 30); err != nil {
			t.Fatal(err)
		}
		changes := l.changes()
		l.start()
		l.wantCPUs("a new agent with a torn file", three)
		if l.changes() != changes {
			t.Error("the new agent touched containers")
		}

		l.want(shared, limited, one, two)
		l.wantCPUs("nothing is left to give", map[string]string{
			"shared-board/c0": "0", "limited-board/c0": "0 with a quota", "one-board/c0": "1", "two-board/c0": "2-3",
		})
		l.want(shared, limited, one, two, last)
		l.settle(10 * time.Second)
		if s := l.status(last.UID); s.Phase != v1.PodFailed || s.Reason != policy.ReasonUnexpected {
			t.Errorf("a pod too much: %+v", s)
		}
		if got := l.status(two.UID).ContainerStatuses[0].RestartCount; got != 0 {
			t.Errorf("%d restarts", got)
		}
		l.want(shared, limited, two)
		l.wantCPUs("one is gone", map[string]string{"shared-board/c0": "0-1", "limited-board/c0": "0-1 with a quota", "two-board/c0": "2-3"})
	})
}

// TestKilledBetweenTheDiskAndTheContainer ends the agent at each call of a
// pod's start: it has the same CPUs after.
func TestKilledBetweenTheDiskAndTheContainer(t *testing.T) {
	for _, call := range []string{"RunPodSandbox", "CreateContainer", "StartContainer"} {
		t.Run(call, func(t *testing.T) {
			dir := t.TempDir()
			bubble(t, func(t *testing.T, l *lab) {
				fourCPUs(t, l, dir)
				remove := l.runtime.Inject(call, fake.Fault{Hang: true})
				p := alone(t, "one", "2")
				l.want(p)
				l.start()
				l.settle(5 * time.Second)
				l.kill()
				remove()
				data, err := os.ReadFile(filepath.Join(dir, "cpus.json"))
				if err != nil {
					t.Fatal(err)
				}
				if s, err := policy.Decode(data); err != nil || s.Pods[p.UID]["c0"].String() != "1-2" {
					t.Errorf("on the disk before %s: %+v, %v", call, s, err)
				}
				l.start()
				l.wantCPUs("after the restart", map[string]string{"one-board/c0": "1-2"})
			})
		})
	}
}

// TestCPUsOfAStartThatTakesLong gives CPUs away while a container runs whose
// pod is still busy starting another one, so that no status tells of it.
func TestCPUsOfAStartThatTakesLong(t *testing.T) {
	dir := t.TempDir()
	bubble(t, func(t *testing.T, l *lab) {
		fourCPUs(t, l, dir)
		remove := l.runtime.Inject("CreateContainer", fake.Fault{Hang: true, Skip: 1, Times: 1})
		defer remove()
		slow, one := shell(t, "slow", "Always", "sleep infinity", "sleep infinity"), alone(t, "one", "1")
		l.want(slow)
		l.start()
		l.wantCPUs("the second container hangs", map[string]string{"slow-board/c0": "0-3"})
		l.want(slow, one)
		l.wantCPUs("one is alone", map[string]string{"slow-board/c0": "0,2-3", "one-board/c0": "1"})
		l.settle(5 * time.Minute)
		l.wantCPUs("all run", map[string]string{"slow-board/c0": "0,2-3", "slow-board/c1": "0,2-3", "one-board/c0": "1"})
	})
}

// TestReservedCPUsChangeNoConfiguration checks that the caller's configuration stays as the
// file has it.
func TestReservedCPUsChangeNoConfiguration(t *testing.T) {
	bubble(t, func(t *testing.T, l *lab) {
		l.cfg.Kubelet.ReservedSystemCPUs = "0"
		l.cfg.Kubelet.KubeReserved = map[string]string{"cpu": "100m"}
		l.start()
		if k := &l.cfg.Kubelet; k.KubeReserved["cpu"] != "100m" || len(k.SystemReserved) != 0 {
			t.Errorf("kubeReserved %v, systemReserved %v", k.KubeReserved, k.SystemReserved)
		}
		if k := &l.agent.cfg.Kubelet; k.KubeReserved["cpu"] != "" || k.SystemReserved["cpu"] != "1" {
			t.Errorf("the agent has kubeReserved %v, systemReserved %v", k.KubeReserved, k.SystemReserved)
		}
	})
}
