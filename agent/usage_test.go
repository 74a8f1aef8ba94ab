package agent

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/tinylet/tinylet/agent/container/criconfig"
	"github.com/tinylet/tinylet/agent/node/nodeinfo/nodeinfotest"
	"github.com/tinylet/tinylet/agent/server/local"
	"github.com/tinylet/tinylet/agent/server/stats"
	"github.com/tinylet/tinylet/cgroups/cgroupstest"
)

// TestUsage: what is measured goes to the pods that it is of, the others have
// their state only.
func TestUsage(t *testing.T) {
	h, tree := cgroupstest.New(t)
	bubble(t, func(t *testing.T, l *lab) {
		web, crash := shell(t, "web", "Always", "sleep infinity"), shell(t, "crash", "Always", "exit 3")
		l.want(web, crash)
		l.start()
		l.settle(25 * time.Second)
		_, id := l.container(web, "c0")
		f := stats.NewSource(stats.SourceConfig{
			NodeName: l.cfg.NodeName, RootDir: l.cfg.Paths.Root, Tree: tree, Node: nodeinfotest.New(t, l.cfg, ""),
			Statuses: l.agent.statuses, Workers: l.agent.workers, Disks: l.agent.disks, AfterRead: func() {}, Log: slog.New(slog.DiscardHandler),
		})
		if _, err := f.Usage(t.Context()); err == nil {
			t.Error("no error before the runtime has reported its cgroup driver")
		}
		f.Node = nodeinfotest.New(t, l.cfg, criconfig.DriverSystemd)
		node, _ := f.Node.Peek()
		group := criconfig.PodCgroup(web, node)
		tell := func(cpu time.Duration) *local.Usage {
			t.Helper()
			h.Uses("/", 4*cpu, 9000)
			h.Uses(group, 2*cpu, 5000)
			h.Uses(criconfig.ContainerCgroup(group, id, node), cpu, 3000)
			u, err := f.Usage(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			return u
		}
		u := tell(time.Second)
		if u.Node.Name != "board" || u.Node.Cores == 0 || u.Node.CPUNanoCores != nil || u.Node.MemoryCapacityBytes == 0 || u.Node.Pressure != nil {
			t.Errorf("node %+v", u.Node)
		}
		l.settle(10 * time.Second)
		u = tell(2 * time.Second)
		if got := u.Node.CPUNanoCores; got == nil || *got != 400_000_000 {
			t.Errorf("4 s of CPU in 10 s are %v", got)
		}
		if len(u.Pods) != 2 || len(u.Classes) != 1 || u.Classes[0].Name != "BestEffort" || u.Classes[0].MemoryBytes != 5000 || *u.Classes[0].CPUNanoCores != 200_000_000 {
			t.Fatalf("%d pods, classes %+v", len(u.Pods), u.Classes)
		}
		c, w := u.Pods[0], u.Pods[1]
		if c.Name != crash.Name || c.Status != "CrashLoopBackOff" || c.Restarts == 0 || c.MemoryBytes != 0 || c.CPUNanoCores != nil || c.Containers[0].State != "Waiting" {
			t.Errorf("crash %+v", c)
		}
		if w.UID != string(web.UID) || w.Status != "Running" || w.MemoryBytes != 5000 || *w.CPUNanoCores != 200_000_000 || w.QOSClass != "BestEffort" {
			t.Errorf("web %+v", w)
		}
		if in := w.Containers; len(in) != 1 || in[0].State != "Running" || in[0].MemoryBytes != 3000 || *in[0].CPUNanoCores != 100_000_000 {
			t.Errorf("web's containers %+v", in)
		}
		// The list of pods tells the same memory, whatever the driver.
		for _, p := range (&local.PodLister{Statuses: l.agent.statuses, Workers: l.agent.workers, Tree: tree, Node: f.Node}).Measured(t.Context()) {
			if p.Pod.UID == web.UID && (p.MemoryBytes != 5000 || len(p.Containers) != 1 || p.Containers[0].MemoryBytes != 3000 || p.Containers[0].LogPath == "") {
				t.Errorf("listed %+v", p)
			}
		}
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		_, _ = f.Usage(ended) // must not hang
	})
}
