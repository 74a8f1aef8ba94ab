package stats

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tinylet/tinylet/agent/node/machine"
	"github.com/tinylet/tinylet/agent/podworker/probe"
	"github.com/tinylet/tinylet/agent/resource/diskusage"
	"github.com/tinylet/tinylet/cgroups"
)

// board is a node whose cgroups are files in a directory.
type board struct {
	root    string
	machine Machine
	pods    []Pod
	log     bytes.Buffer
	cfg     Config
}

var (
	boot    = time.Unix(1700000000, 0)
	started = time.Unix(1700000100, 500e6)
)

func newBoard(t testing.TB) *board {
	t.Helper()
	b := &board{
		root: t.TempDir(),
		machine: Machine{
			Info:  machine.Info{MachineID: "machine", SystemUUID: "uuid", BootID: "boot"},
			Load:  machine.Load{Boot: boot, Memory: 256 << 20, SwapTotal: 64 << 20, SwapFree: 60 << 20, MaxTasks: 1000, Tasks: 99},
			Cores: 4,
		},
	}
	b.write(t, "/", map[string]string{
		"cgroup.controllers": "cpu io memory pids\n",
		"cpu.stat":           "usage_usec 100000000\nuser_usec 60000000\nsystem_usec 40000000\n",
		"memory.stat":        "anon 50000000\nfile 30000000\ninactive_file 10000000\npgfault 5\npgmajfault 1\n",
		"cpu.pressure":       "some avg10=1.00 avg60=0.50 avg300=0.25 total=7000000\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=0\n",
	})
	tree, err := cgroups.Open(b.root)
	if err != nil {
		t.Fatal(err)
	}
	b.cfg = Config{
		Node: "node-1", Groups: tree, Device: "/dev/mmcblk0",
		Log:     slog.New(slog.NewTextHandler(&b.log, &slog.HandlerOptions{Level: slog.LevelDebug})),
		Machine: func() (Machine, error) { return b.machine, nil },
		Pods:    func(context.Context) ([]Pod, error) { return b.pods, nil },

		AfterRead: func() {}, SystemContainers: func() []SystemContainer { return nil },
		Network:  func(_ context.Context, _ *Pod, to []Interface) ([]Interface, error) { return to, nil },
		PodDisk:  func(context.Context, *Pod) (diskusage.PodUsage, error) { return diskusage.PodUsage{}, nil },
		NodeDisk: func(context.Context) (diskusage.NodeUsage, error) { return diskusage.NodeUsage{}, nil },
	}
	return b
}

func (b *board) stats(t testing.TB) *Stats {
	t.Helper()
	return New(b.cfg)
}

func (b *board) write(t testing.TB, group string, files map[string]string) {
	t.Helper()
	dir := filepath.Join(b.root, group)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// group returns the files of a cgroup with the given CPU time and memory.
func group(seconds, anon int) map[string]string {
	return map[string]string{
		"cgroup.controllers": "cpu io memory pids\n",
		"cpu.stat": fmt.Sprintf("usage_usec %d\nuser_usec %d\nsystem_usec 0\nnice_usec 0\ncore_sched.force_idle_usec 0\n"+
			"nr_periods 10\nnr_throttled 2\nthrottled_usec 30000\nnr_bursts 0\nburst_usec 0\n", seconds*1e6, seconds*1e6),
		"memory.current":      fmt.Sprintln(anon + 3000),
		"memory.max":          "33554432\n",
		"memory.swap.current": "4096\n",
		"memory.swap.max":     "max\n",
		"memory.stat": fmt.Sprintf("anon %d\nfile 2500\nkernel 500\nkernel_stack 100\npagetables 100\nsec_pagetables 0\npercpu 0\nsock 0\n"+
			"vmalloc 0\nshmem 0\nzswap 0\nzswapped 0\nfile_mapped 1000\nfile_dirty 0\nfile_writeback 0\nswapcached 0\nanon_thp 0\nfile_thp 0\n"+
			"shmem_thp 0\ninactive_anon 0\nactive_anon %d\ninactive_file 2000\nactive_file 500\nunevictable 0\nslab_reclaimable 50\n"+
			"slab_unreclaimable 50\nslab 100\nworkingset_refault_anon 0\nworkingset_refault_file 0\npgfault 77\npgmajfault 3\n", anon, anon),
		"memory.events":   "low 0\nhigh 0\nmax 4\noom 2\noom_kill 1\noom_group_kill 0\n",
		"pids.current":    "6\n",
		"io.stat":         "179:0 rbytes=4096 wbytes=8192 rios=3 wios=4 dbytes=0 dios=0\n",
		"cpu.pressure":    "some avg10=0.10 avg60=0.20 avg300=0.30 total=1500000\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=250000\n",
		"memory.pressure": "some avg10=0.00 avg60=0.00 avg300=0.00 total=10\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=5\n",
		"io.pressure":     "some avg10=2.00 avg60=1.00 avg300=0.50 total=20\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=15\n",
	}
}

// pod adds a pod with its groups. Its containers use 1 second and 1 MB, 2
// seconds and 2 MB, and so on.
func (b *board) pod(t testing.TB, namespace, name string, containers ...string) *Pod {
	t.Helper()
	p := Pod{
		Namespace: namespace, Name: name, UID: "uid-" + name, Cgroup: "/kubepods/burstable/poduid-" + name,
		Sandbox: Sandbox{ID: "sandbox-" + name, Image: "registry.k8s.io/pause:3.10", Start: started.Add(-time.Second), Cgroup: "/kubepods/burstable/poduid-" + name + "/sandbox"},
	}
	b.write(t, p.Cgroup, group(10, 10e6))
	for i, c := range containers {
		container := Container{Name: c, ID: name + "-" + c, Image: "docker.io/library/busybox:1.36", Start: started, Cgroup: p.Cgroup + "/" + c}
		b.write(t, container.Cgroup, group(i+1, (i+1)*1e6))
		p.Containers = append(p.Containers, container)
	}
	b.pods = append(b.pods, p)
	return &b.pods[len(b.pods)-1]
}

func (b *board) withNetwork() {
	b.cfg.Network = func(_ context.Context, pod *Pod, to []Interface) ([]Interface, error) {
		if pod == nil {
			return append(to, Interface{Name: "wlan0", Rx: Traffic{Bytes: 1}}), nil
		}
		if pod.Name == "broken" {
			return append(to, Interface{Name: "half"}), errors.New("no such namespace")
		}
		return append(to,
			Interface{Name: "eth0", Rx: Traffic{Bytes: 100, Packets: 10, Errors: 1, Dropped: 2}, Tx: Traffic{Bytes: 200, Packets: 20, Errors: 3, Dropped: 4}},
			Interface{Name: "net1", Rx: Traffic{Bytes: 5}, Tx: Traffic{Bytes: 6}}), nil
	}
}

// A container that ends between the list and the reading is not an error and
// does not affect the others. An existing cgroup that cannot be read is one.
func TestGroupsThatAreGone(t *testing.T) {
	b := newBoard(t)
	b.pod(t, "default", "web", "app", "ended")
	b.pod(t, "default", "gone", "app")
	for _, dir := range []string{b.pods[0].Containers[1].Cgroup, b.pods[1].Cgroup} {
		if err := os.RemoveAll(filepath.Join(b.root, dir)); err != nil {
			t.Fatal(err)
		}
	}
	s := b.stats(t)
	summary, err := s.Summary(t.Context(), false)
	if err != nil {
		t.Fatal(err)
	}
	if len(summary.Pods) != 1 || len(summary.Pods[0].Containers) != 1 || summary.Pods[0].Containers[0].Name != "app" {
		t.Errorf("pods %+v", summary.Pods)
	}
	if b.log.Len() > 0 {
		t.Errorf("log:\n%s", &b.log)
	}
	if text := resource(t, s); !strings.Contains(text, "\nresource_scrape_error 0\n") {
		t.Errorf("text:\n%s", text)
	}
	b.write(t, b.pods[0].Containers[0].Cgroup, map[string]string{"cpu.stat": "usage_usec many\n"})
	if text := resource(t, s); !strings.Contains(text, "\nresource_scrape_error 1\n") || !strings.Contains(text, `pod_cpu_usage_seconds_total{namespace="default",pod="web"} 10 `) {
		t.Errorf("text:\n%s", text)
	}
	if text := cadvisor(t, s); !strings.Contains(text, "\ncontainer_scrape_error 1\n") {
		t.Errorf("text:\n%s", text)
	}
	if !strings.Contains(b.log.String(), "poduid-web/app: cpu.stat") {
		t.Errorf("log:\n%s", &b.log)
	}
}

func TestNothingCanBeRead(t *testing.T) {
	errRuntime := errors.New("the runtime does not answer")
	b := newBoard(t)
	looked := 0
	b.cfg.AfterRead = func() { looked++ }
	b.cfg.Pods = func(context.Context) ([]Pod, error) { return nil, errRuntime }
	s := b.stats(t)
	var out bytes.Buffer
	if err := s.WriteSummary(t.Context(), &out, false); !errors.Is(err, errRuntime) || out.Len() > 0 {
		t.Errorf("summary: %v, and %q", err, &out)
	}
	if text := resource(t, s); !strings.HasSuffix(text, "\nscrape_error 1\n") || strings.Contains(text, "node_") {
		t.Errorf("text:\n%s", text)
	}
	if text := cadvisor(t, s); !strings.Contains(text, "\ncontainer_scrape_error 1\n") || strings.Contains(text, "machine_memory") {
		t.Errorf("text:\n%s", text)
	}
	errProc := errors.New("no /proc")
	b.cfg.Machine = func() (Machine, error) { return Machine{}, errProc }
	if _, err := b.stats(t).Summary(t.Context(), true); !errors.Is(err, errProc) {
		t.Errorf("summary: %v", err)
	}
	if looked != 4 {
		t.Errorf("Looked was called for %d of 4 requests", looked)
	}
}

// TestLooked shows that Looked is called for each request that reads cgroups.
func TestLooked(t *testing.T) {
	b := newBoard(t)
	looked := 0
	b.cfg.AfterRead = func() { looked++ }
	s := b.stats(t)
	cadvisor(t, s)
	resource(t, s)
	if _, err := s.Summary(t.Context(), false); err != nil || looked != 3 {
		t.Errorf("Looked was called for %d of 3 requests: %v", looked, err)
	}
}

// brokenWriter is a client that disconnected.
type brokenWriter struct{}

var errWriter = errors.New("broken pipe")

func (brokenWriter) Write([]byte) (int, error) { return 0, errWriter }

func TestWriterThatFails(t *testing.T) {
	b := newBoard(t)
	b.pod(t, "default", "web", "app")
	s := b.stats(t)
	for name, err := range map[string]error{
		"summary":  s.WriteSummary(t.Context(), brokenWriter{}, false),
		"resource": s.WriteResource(t.Context(), brokenWriter{}),
		"cadvisor": s.WriteCadvisor(t.Context(), brokenWriter{}),
		"probes":   WriteProbes(brokenWriter{}, []probe.Count{{Kind: "Liveness", Failed: 1}}),
	} {
		if !errors.Is(err, errWriter) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestAtOnce(t *testing.T) {
	b := newBoard(t)
	b.withNetwork()
	b.cfg.Log = slog.New(slog.DiscardHandler)
	b.pod(t, "default", "web", "app", "side")
	s := b.stats(t)
	var wait sync.WaitGroup
	for range 4 {
		for _, write := range []func() error{
			func() error { return s.WriteSummary(t.Context(), io.Discard, false) },
			func() error { return s.WriteResource(t.Context(), io.Discard) },
			func() error { return s.WriteCadvisor(t.Context(), io.Discard) },
		} {
			wait.Go(func() {
				if err := write(); err != nil {
					t.Error(err)
				}
			})
		}
	}
	wait.Wait()
}
