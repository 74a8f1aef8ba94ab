package agent

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/tinylet/tinylet/agent/container/criconfig"
	"github.com/tinylet/tinylet/agent/pod"
	"github.com/tinylet/tinylet/agent/server/local"
	"github.com/tinylet/tinylet/agent/server/stats"
	"github.com/tinylet/tinylet/cgroups"
)

// hierarchy is a folder with the files of cgroups.
type hierarchy struct {
	t    *testing.T
	root string
}

func newHierarchy(t *testing.T) (*hierarchy, *cgroups.Tree) {
	t.Helper()
	h := &hierarchy{t, t.TempDir()}
	h.write("/", map[string]string{"cgroup.controllers": "cpu memory\n"})
	tree, err := cgroups.Open(h.root)
	if err != nil {
		t.Fatal(err)
	}
	return h, tree
}

func (h *hierarchy) write(group string, files map[string]string) {
	h.t.Helper()
	dir := filepath.Join(h.root, group)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		h.t.Fatal(err)
	}
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			h.t.Fatal(err)
		}
	}
}

// uses writes what a group uses: so much CPU time, and bytes.
func (h *hierarchy) uses(group string, cpu time.Duration, bytes int) {
	h.t.Helper()
	h.write(group, map[string]string{
		"cgroup.controllers": "cpu memory\n",
		"cpu.stat":           fmt.Sprintf("usage_usec %d\n", cpu.Microseconds()), "memory.current": fmt.Sprintln(bytes + 100), "memory.stat": "inactive_file 100\n",
	})
}

// podsOf are the pods of figures, by what dashboards know them by.
func podsOf(t *testing.T, f *figures) (uids []string) {
	t.Helper()
	all, err := f.pods(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range all {
		uids = append(uids, p.Namespace+"/"+p.Name+" "+p.UID)
	}
	return uids
}

func TestPodsOfFigures(t *testing.T) {
	v := newView(t, nil)
	f := &figures{view: v}
	v.node.told.Store(nil)
	if _, err := f.pods(t.Context()); !errors.Is(err, errNotTold) {
		t.Errorf("before the runtime told where its cgroups are: %v", err)
	}
	v.node.told.Store(&runtimeFacts{cgroupDriver: criconfig.DriverCgroupfs})
	if got := podsOf(t, f); len(got) != 0 {
		t.Errorf("of no pods: %v", got)
	}
	born := time.Unix(1e9, 0)
	first, st := knownPod("web", "2", born)
	v.set(first, st, "sandbox-2")
	next, nextSt := knownPod("web", "1", born.Add(time.Hour))
	v.set(next, nextSt, "")
	if diff := cmp.Diff([]string{"a/web 2"}, podsOf(t, f)); diff != "" {
		t.Errorf("the next one has no sandbox yet (-want +got):\n%s", diff)
	}
	// Whichever UID sorts first, the newer one counts.
	v.set(next, nextSt, "sandbox-1")
	if diff := cmp.Diff([]string{"a/web 1"}, podsOf(t, f)); diff != "" {
		t.Errorf("both have one (-want +got):\n%s", diff)
	}
	later, st := knownPod("web", "3", born.Add(2*time.Hour))
	v.set(later, st, "sandbox-3")
	other, st := knownPod("web", "4", born)
	other.Namespace = "b"
	v.set(other, st, "sandbox-4")
	if diff := cmp.Diff([]string{"a/web 3", "b/web 4"}, podsOf(t, f)); diff != "" {
		t.Errorf("three, and one elsewhere (-want +got):\n%s", diff)
	}
}

func TestStatsPod(t *testing.T) {
	p, st := knownPod("web", "1", time.Unix(1e9, 0))
	since := time.Unix(1e9+5, 0)
	st.ContainerStatuses[0].State.Running.StartedAt = metav1.NewTime(since)
	e := &pod.Entry{Pod: p, Status: &st, Sandbox: pod.Sandbox{ID: "box", Since: since}}
	for driver, folder := range map[string][2]string{
		criconfig.DriverCgroupfs: {"/kubepods/besteffort/pod1", "/kubepods/besteffort/pod1/"},
		criconfig.DriverSystemd:  {"/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod1.slice", "/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod1.slice/cri-containerd-"},
	} {
		end := map[string]string{criconfig.DriverSystemd: ".scope"}[driver]
		want := stats.Pod{
			Namespace: "a", Name: "web", UID: "1", Cgroup: folder[0],
			Sandbox: stats.Sandbox{ID: "box", Image: pauseImage, Start: since, Cgroup: folder[1] + "box" + end},
			// Those that have ended, or have no ID, have no cgroup.
			Containers: []stats.Container{{Name: "app", ID: "app-1", Image: "app:1", Start: since, Cgroup: folder[1] + "app-1" + end}},
		}
		if diff := cmp.Diff(want, statsPod(e, &criconfig.Node{CgroupDriver: driver})); diff != "" {
			t.Errorf("%s (-want +got):\n%s", driver, diff)
		}
	}
	for _, tt := range []struct{ told, spec, want string }{{"docker.io/a:1", "a:1", "docker.io/a:1"}, {"", "a:1", "a:1"}, {"", "", "app"}} {
		p.Spec.Containers[0].Image = tt.spec
		if got := imageOf(p, &v1.ContainerStatus{Name: "app", Image: tt.told}); got != tt.want {
			t.Errorf("image %q of a container of %q: %q, want %q", tt.told, tt.spec, got, tt.want)
		}
	}
}

func TestSystemGroups(t *testing.T) {
	v := newView(t, nil)
	f := &figures{view: v}
	for driver, want := range map[string]string{criconfig.DriverCgroupfs: "/edge/kubepods", criconfig.DriverSystemd: "/edge.slice/edge-kubepods.slice", "": ""} {
		v.node.cfg.Kubelet.CgroupRoot = "/edge"
		v.node.told.Store(nil)
		if driver != "" {
			v.node.told.Store(&runtimeFacts{cgroupDriver: driver})
		}
		got := ""
		for _, g := range f.system() {
			switch g.Name {
			case statsapi.SystemContainerPods:
				got = g.Cgroup
			case statsapi.SystemContainerKubelet:
				if own, _ := cgroups.Own(); g.Cgroup != own || own == "/" {
					t.Errorf("the agent is in %q, not %q", own, g.Cgroup)
				}
			default:
				t.Errorf("group %+v", g)
			}
		}
		if got != want {
			t.Errorf("%s: pods are in %q, want %q", driver, got, want)
		}
	}
}

func TestNetworkOfAPod(t *testing.T) {
	own, ok := cgroups.Own()
	if !ok {
		t.Skip("this machine tells no cgroup of v2")
	}
	ended := exec.Command("true")
	if err := ended.Run(); err != nil {
		t.Fatal(err)
	}
	h, tree := newHierarchy(t)
	v := newView(t, tree)
	f := &figures{view: v}
	born := time.Unix(1e9, 0)
	p, st := knownPod("web", "1", born)
	v.set(p, st, "sandbox")
	host, st := knownPod("host", "2", born)
	host.Spec.HostNetwork = true
	v.set(host, st, "sandbox")
	here, gone, none := fmt.Sprintln(os.Getpid()), fmt.Sprintln(ended.Process.Pid), fmt.Sprintln(math.MaxInt32)
	h.write("/pod", map[string]string{"cgroup.procs": here})
	h.write("/pod/gone", map[string]string{"cgroup.procs": gone})
	h.write("/pod/none", map[string]string{"cgroup.procs": none})
	h.write("/pod/empty", map[string]string{"cgroup.procs": ""})
	h.write("/pod/beyond", map[string]string{"cgroup.procs": "0\n"})
	h.write("/pod/odd", map[string]string{"cgroup.procs": "web\n"})
	if own != "/" {
		h.write(own, map[string]string{"cgroup.procs": here})
	} else {
		h.write("/", map[string]string{"cgroup.procs": here})
	}
	for _, tt := range []struct {
		name, uid, sandbox string
		containers         []string
		counted, fails     bool
	}{
		{"its sandbox", "1", own, nil, true, false},
		{"a container in place of a sandbox that is gone", "1", "/pod/missing", []string{"/pod/empty", "/pod/beyond", "/pod/gone", "/pod/none", own}, true, false},
		{"another's process with the ID", "1", "/pod", []string{"/pod"}, false, false},
		{"no process at all", "1", "/pod/empty", nil, false, false},
		{"the node's network", "2", own, nil, false, false},
		{"a pod that is gone", "3", own, nil, false, false},
		{"no list of processes", "1", "/pod/odd", nil, false, true},
		{"a path out of the hierarchy", "1", "/../../etc", nil, false, true},
	} {
		p := &stats.Pod{Namespace: "a", Name: "web", UID: tt.uid, Sandbox: stats.Sandbox{Cgroup: tt.sandbox}}
		for _, c := range tt.containers {
			p.Containers = append(p.Containers, stats.Container{Cgroup: c})
		}
		before := []stats.Interface{{Name: "before"}}
		got, err := f.network(t.Context(), p, before)
		if (err != nil) != tt.fails || len(got) == 0 || got[0].Name != "before" {
			t.Errorf("%s: %+v, %v", tt.name, got, err)
			continue
		}
		// What there is in this network depends on the machine.
		dev, _ := os.ReadFile("/proc/self/net/dev")
		want := 1
		if tt.counted {
			want += len(stats.AppendInterfaces(dev, nil))
		}
		if len(got) != want {
			t.Errorf("%s: %d interfaces, want %d", tt.name, len(got), want)
		}
	}
	if _, err := f.network(t.Context(), nil, nil); err != nil {
		t.Errorf("the node's: %v", err)
	}
}

// crun has the processes of a container in a group below its scope.
func TestProcessOfAScope(t *testing.T) {
	h, tree := newHierarchy(t)
	f := &figures{view: newView(t, tree)}
	h.write("/crun.scope", map[string]string{"cgroup.procs": ""})
	h.write("/crun.scope/container", map[string]string{"cgroup.procs": "7\n8\n"})
	h.write("/runc.scope", map[string]string{"cgroup.procs": "9\n"})
	for group, want := range map[string]int{"/crun.scope": 7, "/runc.scope": 9} {
		if pid, in, err := f.process(group); pid != want || err != nil || !strings.HasPrefix(in, group) {
			t.Errorf("%s: process %d in %s, %v", group, pid, in, err)
		}
	}
}

// A process stands for a group only if it is in it, or below.
// TestProcessInAGroup: a process whose group is another one, by whatever part
// of its name, has taken the ID of one that is gone.
func TestProcessInAGroup(t *testing.T) {
	proc := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		file := filepath.Join(proc, "42", name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("cgroup", "4:memory:/other\n0::/kubepods/pod1/abc\n")
	write("net/dev", "counters")
	for _, group := range []string{"/kubepods/pod1/abc", "/kubepods/pod1"} {
		if data, err := netDevOf(proc, 42, group); err != nil || string(data) != "counters" {
			t.Errorf("%s: %q, %v", group, data, err)
		}
	}
	for _, other := range []string{"/kubepods/pod1/abcd", "/kubepods/pod1/ab", "/kubepods/pod1/abc/below", "/other", "/kubepods/pod"} {
		if data, err := netDevOf(proc, 42, other); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: %q, %v", other, data, err)
		}
	}
	if _, err := netDevOf(proc, 43, "/kubepods/pod1"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a process that is gone: %v", err)
	}
}

func TestRootDevice(t *testing.T) {
	for _, folder := range []string{"/proc", filepath.Join(t.TempDir(), "none")} {
		if got := rootDevice(folder); got != "/dev/root" {
			t.Errorf("%s is on %s", folder, got)
		}
	}
}

// TestUsage: what is measured goes to the pods that it is of, the others have
// their state only.
func TestUsage(t *testing.T) {
	h, tree := newHierarchy(t)
	bubble(t, func(t *testing.T, l *lab) {
		web, crash := shell(t, "web", "Always", "sleep infinity"), shell(t, "crash", "Always", "exit 3")
		l.want(web, crash)
		l.start()
		l.settle(25 * time.Second)
		_, id := l.container(web, "c0")
		facts, err := newNodeFacts(l.cfg, l.runtime, nil)
		if err != nil {
			t.Fatal(err)
		}
		v := &view{statuses: l.agent.statuses, workers: l.agent.workers, node: facts, tree: tree}
		log := slog.New(slog.DiscardHandler)
		f, err := newFigures(l.cfg, v, l.agent, log)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.usage(t.Context()); !errors.Is(err, errNotTold) {
			t.Errorf("before the runtime told its driver: %v", err)
		}
		facts.told.Store(&runtimeFacts{cgroupDriver: criconfig.DriverSystemd})
		node, _ := facts.peek()
		group := criconfig.PodCgroup(web, node)
		tell := func(cpu time.Duration) *local.Usage {
			t.Helper()
			h.uses("/", 4*cpu, 9000)
			h.uses(group, 2*cpu, 5000)
			h.uses(criconfig.ContainerCgroup(group, id, node), cpu, 3000)
			u, err := f.usage(t.Context())
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
		for _, p := range v.pods(t.Context()) {
			if p.Pod.UID == web.UID && (p.MemoryBytes != 5000 || len(p.Containers) != 1 || p.Containers[0].MemoryBytes != 3000 || p.Containers[0].LogPath == "") {
				t.Errorf("listed %+v", p)
			}
		}
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		_, _ = f.usage(ended) // must not hang
	})
}

// There are no figures where there are no cgroups.
func TestNoFigures(t *testing.T) {
	if f, err := newFigures(nil, &view{}, nil, nil); f != nil || err != nil {
		t.Errorf("%v, %v", f, err)
	}
}

func TestSumOfWhatIsKnown(t *testing.T) {
	one, two := new(uint64(1)), new(uint64(2))
	for _, tt := range []struct {
		a, b *uint64
		want string
	}{{nil, nil, "-"}, {one, nil, "1"}, {nil, two, "2"}, {one, two, "3"}} {
		got := "-"
		if s := sum(tt.a, tt.b); s != nil {
			got = strconv.FormatUint(*s, 10)
		}
		if got != tt.want {
			t.Errorf("%v + %v = %s, want %s", tt.a, tt.b, got, tt.want)
		}
	}
	if *one != 1 || *two != 2 {
		t.Error("the summands changed")
	}
}

func TestPressureOfTheNode(t *testing.T) {
	h, tree := newHierarchy(t)
	f := &figures{view: &view{tree: tree}}
	if got := f.pressure(); got != nil {
		t.Errorf("of a kernel that tells none: %+v", got)
	}
	line := func(avg int) string {
		return fmt.Sprintf("some avg10=%d.50 avg60=0.00 avg300=0.00 total=9\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=0\n", avg)
	}
	h.write("/", map[string]string{"cpu.pressure": line(1), "memory.pressure": line(2), "io.pressure": line(3)})
	if got := f.pressure(); got == nil || *got != (local.Pressure{CPU: 1.5, Memory: 2.5, IO: 3.5}) {
		t.Errorf("%+v", got)
	}
}
