package stats

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/tinylet/tinylet/agent/resource/diskusage"
	"github.com/tinylet/tinylet/cgroups"
)

func filesystem(used uint64) *statsapi.FsStats {
	return &statsapi.FsStats{
		Time: metav1.NewTime(started), UsedBytes: new(used), InodesUsed: new(used / 1000),
		AvailableBytes: new(uint64(1e9)), CapacityBytes: new(uint64(4e9)), InodesFree: new(uint64(5000)), Inodes: new(uint64(9000)),
	}
}

// fullBoard is a node with all optional funcs.
func fullBoard(t *testing.T) *board {
	t.Helper()
	b := newBoard(t)
	b.withNetwork()
	b.cfg.SystemContainers = func() []SystemContainer {
		return []SystemContainer{{Name: statsapi.SystemContainerKubelet, Cgroup: "/tinylet", Start: started}}
	}
	b.write(t, "/tinylet", group(3, 9e6))
	b.pod(t, "default", "web", "app", "side")
	b.cfg.NodeDisk = func(context.Context) (diskusage.NodeUsage, error) {
		return diskusage.NodeUsage{Fs: filesystem(3e9), ImageFs: filesystem(2e9), ContainerFs: filesystem(1e9)}, nil
	}
	b.cfg.PodDisk = func(_ context.Context, p *Pod) (diskusage.PodUsage, error) {
		if p.Name == "broken" {
			return diskusage.PodUsage{}, errors.New("a volume does not answer")
		}
		return diskusage.PodUsage{
			Containers: []diskusage.ContainerUsage{{Rootfs: filesystem(1000), Logs: filesystem(2000)}, {Logs: filesystem(4000)}},
			Volumes: []diskusage.VolumeUsage{
				{Stats: statsapi.VolumeStats{Name: "cache", FsStats: *filesystem(8000)}, Ephemeral: true},
				{Stats: statsapi.VolumeStats{Name: "data", FsStats: *filesystem(1 << 40), PVCRef: &statsapi.PVCReference{Name: "data", Namespace: "default"}}},
			},
			Other: filesystem(16000),
		}, nil
	}
	return b
}

// The clock of the bubble: two readings ten seconds apart, between which the
// first container uses 5 seconds of CPU time.
func TestSummary(t *testing.T) {
	b := fullBoard(t)
	synctest.Test(t, func(t *testing.T) {
		s := b.stats(t)
		if _, err := s.Summary(t.Context(), false); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Second)
		b.write(t, b.pods[0].Containers[0].Cgroup, map[string]string{"cpu.stat": "usage_usec 6000000\n"})
		got, err := s.Summary(t.Context(), false)
		if err != nil {
			t.Fatal(err)
		}
		now := metav1.NewTime(time.Now())
		psi := func(some, full uint64, averages ...float64) *statsapi.PSIStats {
			return &statsapi.PSIStats{
				Some: statsapi.PSIData{Total: some, Avg10: averages[0], Avg60: averages[1], Avg300: averages[2]},
				Full: statsapi.PSIData{Total: full},
			}
		}
		cpu := func(seconds, rate uint64) *statsapi.CPUStats {
			return &statsapi.CPUStats{Time: now, UsageCoreNanoSeconds: new(seconds * 1e9), UsageNanoCores: new(rate), PSI: psi(1500000, 250000, .1, .2, .3)}
		}
		memory := func(anon uint64) *statsapi.MemoryStats {
			return &statsapi.MemoryStats{
				Time: now, UsageBytes: new(anon + 3000), WorkingSetBytes: new(anon + 1000), AvailableBytes: new(33554432 - anon - 1000),
				RSSBytes: new(anon), PageFaults: new(uint64(77)), MajorPageFaults: new(uint64(3)), PSI: psi(10, 5, 0, 0, 0),
			}
		}
		swap := &statsapi.SwapStats{Time: now, SwapUsageBytes: new(uint64(4096))}
		io := &statsapi.IOStats{Time: now, PSI: psi(20, 15, 2, 1, .5)}
		ephemeral := filesystem(31000)
		want := &statsapi.Summary{
			Node: statsapi.NodeStats{
				NodeName: "node-1", StartTime: metav1.NewTime(boot),
				CPU: &statsapi.CPUStats{Time: now, UsageCoreNanoSeconds: new(uint64(100e9)), UsageNanoCores: new(uint64(0)), PSI: psi(7000000, 0, 1, .5, .25)},
				Memory: &statsapi.MemoryStats{
					Time: now, UsageBytes: new(uint64(80e6)), WorkingSetBytes: new(uint64(70e6)), AvailableBytes: new(uint64(256<<20 - 70e6)),
					RSSBytes: new(uint64(50e6)), PageFaults: new(uint64(5)), MajorPageFaults: new(uint64(1)),
				},
				Swap: &statsapi.SwapStats{Time: now, SwapUsageBytes: new(uint64(4 << 20)), SwapAvailableBytes: new(uint64(60 << 20))},
				Network: &statsapi.NetworkStats{Time: now, Interfaces: []statsapi.InterfaceStats{
					{Name: "wlan0", RxBytes: new(uint64(1)), RxErrors: new(uint64(0)), TxBytes: new(uint64(0)), TxErrors: new(uint64(0))},
				}},
				Fs:      filesystem(3e9),
				Runtime: &statsapi.RuntimeStats{ImageFs: filesystem(2e9), ContainerFs: filesystem(1e9)},
				Rlimit:  &statsapi.RlimitStats{Time: now, MaxPID: new(int64(1000)), NumOfRunningProcesses: new(int64(99))},
				SystemContainers: []statsapi.ContainerStats{
					{Name: "kubelet", StartTime: metav1.NewTime(started), CPU: cpu(3, 0), Memory: memory(9e6), Swap: swap, IO: io},
				},
			},
			Pods: []statsapi.PodStats{{
				PodRef:    statsapi.PodReference{Name: "web", Namespace: "default", UID: "uid-web"},
				StartTime: metav1.NewTime(started.Add(-time.Second)),
				CPU:       cpu(10, 0), Memory: memory(10e6), Swap: swap, IO: io,
				ProcessStats: &statsapi.ProcessStats{ProcessCount: new(uint64(6))},
				Containers: []statsapi.ContainerStats{
					{Name: "app", StartTime: metav1.NewTime(started), CPU: cpu(6, 5e8), Memory: memory(1e6), Swap: swap, IO: io, Rootfs: filesystem(1000), Logs: filesystem(2000)},
					{Name: "side", StartTime: metav1.NewTime(started), CPU: cpu(2, 0), Memory: memory(2e6), Swap: swap, IO: io, Logs: filesystem(4000)},
				},
				Network: &statsapi.NetworkStats{
					Time:           now,
					InterfaceStats: statsapi.InterfaceStats{Name: "eth0", RxBytes: new(uint64(100)), RxErrors: new(uint64(1)), TxBytes: new(uint64(200)), TxErrors: new(uint64(3))},
					Interfaces: []statsapi.InterfaceStats{
						{Name: "eth0", RxBytes: new(uint64(100)), RxErrors: new(uint64(1)), TxBytes: new(uint64(200)), TxErrors: new(uint64(3))},
						{Name: "net1", RxBytes: new(uint64(5)), RxErrors: new(uint64(0)), TxBytes: new(uint64(6)), TxErrors: new(uint64(0))},
					},
				},
				VolumeStats: []statsapi.VolumeStats{
					{Name: "cache", FsStats: *filesystem(8000)},
					{Name: "data", FsStats: *filesystem(1 << 40), PVCRef: &statsapi.PVCReference{Name: "data", Namespace: "default"}},
				},
				EphemeralStorage: ephemeral,
			}},
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("full (-want +got):\n%s", diff)
		}

		got, err = s.Summary(t.Context(), true)
		if err != nil {
			t.Fatal(err)
		}
		n := &want.Node
		n.IO, n.Network, n.Fs, n.Runtime, n.Rlimit, n.SystemContainers[0].IO = nil, nil, nil, nil, nil, nil
		p := &want.Pods[0]
		p.IO, p.ProcessStats, p.Network, p.VolumeStats, p.EphemeralStorage = nil, nil, nil, nil, nil
		for i := range p.Containers {
			p.Containers[i].IO, p.Containers[i].Rootfs, p.Containers[i].Logs = nil, nil, nil
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("only CPU and memory (-want +got):\n%s", diff)
		}
	})
}

func TestWriteSummary(t *testing.T) {
	b := fullBoard(t)
	for pods := range 3 {
		synctest.Test(t, func(t *testing.T) { // whose clock stands still, on a whole second
			b.pods = b.pods[:0]
			for i := range pods {
				b.pod(t, "default", "web-"+string(rune('a'+i)), "app")
			}
			s := b.stats(t)
			want, err := s.Summary(t.Context(), false)
			if err != nil {
				t.Fatal(err)
			}
			var out bytes.Buffer
			if err := s.WriteSummary(t.Context(), &out, false); err != nil {
				t.Fatal(err)
			}
			var got statsapi.Summary
			decoder := json.NewDecoder(&out)
			decoder.DisallowUnknownFields()
			if err := decoder.Decode(&got); err != nil {
				t.Fatal(err)
			}
			whole := cmp.Transformer("second", func(at metav1.Time) int64 { return at.Unix() })
			if diff := cmp.Diff(want, &got, whole); diff != "" || got.Pods == nil {
				t.Errorf("%d pods (-want +got):\n%s", pods, diff)
			}
			if decoder.More() {
				t.Error("there is more behind it")
			}
		})
	}
}

func TestSummaryOfLittle(t *testing.T) {
	b := newBoard(t)
	p := b.pod(t, "default", "web", "app")
	for _, name := range []string{"memory.stat", "memory.current", "memory.swap.current", "memory.swap.max", "cpu.pressure", "memory.pressure", "io.pressure", "pids.current", "cpu.stat"} {
		if err := os.Remove(b.root + p.Containers[0].Cgroup + "/" + name); err != nil {
			t.Fatal(err)
		}
	}
	b.machine.MaxTasks = 0
	summary, err := b.stats(t).Summary(t.Context(), false)
	if err != nil {
		t.Fatal(err)
	}
	c := summary.Pods[0].Containers[0]
	if c.CPU != nil || c.Memory != nil || c.Swap != nil || c.IO != nil {
		t.Errorf("nothing is known of the container, but %+v", c)
	}
	n := summary.Node
	if n.Network != nil || n.Fs != nil || n.Runtime != nil || n.Rlimit != nil || n.IO != nil || n.CPU.UsageNanoCores != nil {
		t.Errorf("node %+v", n)
	}
	if p := summary.Pods[0]; p.Network != nil || p.EphemeralStorage != nil || p.CPU == nil {
		t.Errorf("pod %+v", p)
	}
}

func TestSummaryWithoutDisks(t *testing.T) {
	b := fullBoard(t)
	b.pod(t, "default", "broken", "app")
	b.cfg.NodeDisk = func(context.Context) (diskusage.NodeUsage, error) { return diskusage.NodeUsage{}, errors.New("statfs") }
	summary, err := b.stats(t).Summary(t.Context(), false)
	if err != nil {
		t.Fatal(err)
	}
	if p := summary.Pods[0].EphemeralStorage; *p.UsedBytes != 31000 || p.CapacityBytes != nil {
		t.Errorf("ephemeral storage %+v", p)
	}
	if p := summary.Pods[1]; p.EphemeralStorage != nil || p.CPU == nil || p.Network != nil {
		t.Errorf("the broken pod is %+v", p)
	}
	for _, want := range []string{"statfs", "a volume does not answer", "no such namespace"} {
		if !strings.Contains(b.log.String(), want) {
			t.Errorf("%s is not in the log:\n%s", want, &b.log)
		}
	}
}

func TestReadingNext(t *testing.T) {
	at := func(seconds float64) time.Time { return boot.Add(time.Duration(seconds * 1e9)) }
	rate := func(n uint64) cgroups.Number { return cgroups.Number{Value: n, Known: true} }
	last := cpuReading{at: at(0), usage: 1e6, rate: rate(42)}
	for _, c := range []struct {
		name  string
		last  cpuReading
		now   time.Time
		usage uint64
		want  cpuReading
	}{
		{"the first", cpuReading{}, at(5), 7, cpuReading{at: at(5), usage: 7}},
		{"idle", last, at(10), 1e6, cpuReading{at: at(10), usage: 1e6, rate: rate(0)}},
		{"half a core", last, at(10), 6e6, cpuReading{at: at(10), usage: 6e6, rate: rate(5e8)}},
		{"four cores for ten minutes", last, at(600), 2401e6, cpuReading{at: at(600), usage: 2401e6, rate: rate(4e9)}},
		{"too soon", last, at(0.9), 9e6, last},
		{"overtaken", last, at(-1), 5e5, last},
		{"too late", last, at(601), 9e6, cpuReading{at: at(601), usage: 9e6}},
		{"another group by the path", last, at(10), 5e5, cpuReading{at: at(10), usage: 5e5}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := c.last.next(c.now, c.usage); got != c.want {
				t.Errorf("got %+v, want %+v", got, c.want)
			}
		})
	}
}

// Readings are kept for existing cgroups and no others.
func TestRatesForget(t *testing.T) {
	b := newBoard(t)
	b.pod(t, "default", "web", "app", "side")
	b.pod(t, "default", "other", "app")
	s := b.stats(t)
	resource(t, s)
	if len(s.rates) != 1+2+3 {
		t.Errorf("%d readings after a first request", len(s.rates))
	}
	b.pods = b.pods[1:]
	cadvisor(t, s)
	if len(s.rates) != 1+2 || s.rates["/kubepods/burstable/poduid-other/app"].at.IsZero() {
		t.Errorf("readings %v", s.rates)
	}
}

func TestEphemeral(t *testing.T) {
	for _, c := range []struct {
		name string
		disk diskusage.PodUsage
		want *statsapi.FsStats
	}{
		{name: "nothing is known"},
		{name: "only a volume elsewhere", disk: diskusage.PodUsage{Volumes: []diskusage.VolumeUsage{{Stats: statsapi.VolumeStats{FsStats: *filesystem(5)}}}}},
		{name: "bytes alone", disk: diskusage.PodUsage{Other: &statsapi.FsStats{UsedBytes: new(uint64(7))}}, want: &statsapi.FsStats{UsedBytes: new(uint64(7))}},
		{name: "inodes alone", disk: diskusage.PodUsage{Other: &statsapi.FsStats{InodesUsed: new(uint64(7))}}, want: &statsapi.FsStats{InodesUsed: new(uint64(7))}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if diff := cmp.Diff(c.want, ephemeralStorage(&c.disk, nil)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
