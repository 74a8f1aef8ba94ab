package stats

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
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
	"github.com/tinylet/tinylet/agent/node/nodeinfo/nodeinfotest"
	"github.com/tinylet/tinylet/agent/pod"
	"github.com/tinylet/tinylet/agent/pod/podtest"
	"github.com/tinylet/tinylet/agent/podworker"
	"github.com/tinylet/tinylet/agent/podworker/podstatus"
	"github.com/tinylet/tinylet/agent/server/local"
	"github.com/tinylet/tinylet/cgroups"
	"github.com/tinylet/tinylet/cgroups/cgroupstest"
)

// newSource returns a Source without pods, on a node whose runtime has reported its cgroup driver.
func newSource(t *testing.T, tree *cgroups.Tree) *Source {
	t.Helper()
	return &Source{SourceConfig: SourceConfig{
		Statuses: podstatus.NewStore(), Node: nodeinfotest.New(t, nodeinfotest.Config(t), criconfig.DriverCgroupfs), Tree: tree,
	}}
}

// set stores a pod with a sandbox, or without if its ID is "".
func set(s *Source, p *v1.Pod, status v1.PodStatus, sandbox string) {
	s.Statuses.Set(p, status, pod.Sandbox{ID: sandbox})
}

// podsOf are the pods of figures, by what dashboards know them by.
func podsOf(t *testing.T, f *Source) (uids []string) {
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

func TestSourcePods(t *testing.T) {
	f, cfg := newSource(t, nil), nodeinfotest.Config(t)
	f.Node = nodeinfotest.New(t, cfg, "")
	if _, err := f.pods(t.Context()); !errors.Is(err, errNoDriver) {
		t.Errorf("before the runtime told where its cgroups are: %v", err)
	}
	f.Node = nodeinfotest.New(t, cfg, criconfig.DriverCgroupfs)
	if got := podsOf(t, f); len(got) != 0 {
		t.Errorf("of no pods: %v", got)
	}
	born := time.Unix(1e9, 0)
	first, st := podtest.Mixed("web", "2", born)
	set(f, first, st, "sandbox-2")
	next, nextSt := podtest.Mixed("web", "1", born.Add(time.Hour))
	set(f, next, nextSt, "")
	if diff := cmp.Diff([]string{"a/web 2"}, podsOf(t, f)); diff != "" {
		t.Errorf("the next one has no sandbox yet (-want +got):\n%s", diff)
	}
	// Whichever UID sorts first, the newer one counts.
	set(f, next, nextSt, "sandbox-1")
	if diff := cmp.Diff([]string{"a/web 1"}, podsOf(t, f)); diff != "" {
		t.Errorf("both have one (-want +got):\n%s", diff)
	}
	later, st := podtest.Mixed("web", "3", born.Add(2*time.Hour))
	set(f, later, st, "sandbox-3")
	other, st := podtest.Mixed("web", "4", born)
	other.Namespace = "b"
	set(f, other, st, "sandbox-4")
	if diff := cmp.Diff([]string{"a/web 3", "b/web 4"}, podsOf(t, f)); diff != "" {
		t.Errorf("three, and one elsewhere (-want +got):\n%s", diff)
	}
}

func TestUsageWithoutStatuses(t *testing.T) {
	u := podUsage(&pod.Entry{Pod: new(v1.Pod), Status: new(v1.PodStatus)}, podworker.Syncing, nil)
	if text, err := json.Marshal(u); err != nil || !strings.Contains(string(text), `"containers":[]}`) {
		t.Errorf("%s, %v", text, err)
	}
}

func TestPodOf(t *testing.T) {
	p, st := podtest.Mixed("web", "1", time.Unix(1e9, 0))
	since := time.Unix(1e9+5, 0)
	st.ContainerStatuses[0].State.Running.StartedAt = metav1.NewTime(since)
	e := &pod.Entry{Pod: p, Status: &st, Sandbox: pod.Sandbox{ID: "box", Since: since}}
	for driver, folder := range map[string][2]string{
		criconfig.DriverCgroupfs: {"/kubepods/besteffort/pod1", "/kubepods/besteffort/pod1/"},
		criconfig.DriverSystemd:  {"/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod1.slice", "/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod1.slice/cri-containerd-"},
	} {
		end := map[string]string{criconfig.DriverSystemd: ".scope"}[driver]
		want := Pod{
			Namespace: "a", Name: "web", UID: "1", Cgroup: folder[0],
			Sandbox: Sandbox{ID: "box", Image: pauseImage, Start: since, Cgroup: folder[1] + "box" + end},
			// Those that have ended, or have no ID, have no cgroup.
			Containers: []Container{{Name: "app", ID: "app-1", Image: "app:1", Start: since, Cgroup: folder[1] + "app-1" + end}},
		}
		if diff := cmp.Diff(want, podOf(e, &criconfig.Node{CgroupDriver: driver})); diff != "" {
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
	f := newSource(t, nil)
	for driver, want := range map[string]string{criconfig.DriverCgroupfs: "/edge/kubepods", criconfig.DriverSystemd: "/edge.slice/edge-kubepods.slice", "": ""} {
		cfg := nodeinfotest.Config(t)
		cfg.Kubelet.CgroupRoot = "/edge"
		f.Node = nodeinfotest.New(t, cfg, driver)
		got := ""
		for _, g := range f.systemContainers() {
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
	h, tree := cgroupstest.New(t)
	f := newSource(t, tree)
	born := time.Unix(1e9, 0)
	p, st := podtest.Mixed("web", "1", born)
	set(f, p, st, "sandbox")
	host, st := podtest.Mixed("host", "2", born)
	host.Spec.HostNetwork = true
	set(f, host, st, "sandbox")
	here, gone, none := fmt.Sprintln(os.Getpid()), fmt.Sprintln(ended.Process.Pid), fmt.Sprintln(math.MaxInt32)
	h.Write("/pod", map[string]string{"cgroup.procs": here})
	h.Write("/pod/gone", map[string]string{"cgroup.procs": gone})
	h.Write("/pod/none", map[string]string{"cgroup.procs": none})
	h.Write("/pod/empty", map[string]string{"cgroup.procs": ""})
	h.Write("/pod/beyond", map[string]string{"cgroup.procs": "0\n"})
	h.Write("/pod/odd", map[string]string{"cgroup.procs": "web\n"})
	if own != "/" {
		h.Write(own, map[string]string{"cgroup.procs": here})
	} else {
		h.Write("/", map[string]string{"cgroup.procs": here})
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
		p := &Pod{Namespace: "a", Name: "web", UID: tt.uid, Sandbox: Sandbox{Cgroup: tt.sandbox}}
		for _, c := range tt.containers {
			p.Containers = append(p.Containers, Container{Cgroup: c})
		}
		before := []Interface{{Name: "before"}}
		got, err := f.network(t.Context(), p, before)
		if (err != nil) != tt.fails || len(got) == 0 || got[0].Name != "before" {
			t.Errorf("%s: %+v, %v", tt.name, got, err)
			continue
		}
		// What there is in this network depends on the machine.
		dev, _ := os.ReadFile("/proc/self/net/dev")
		want := 1
		if tt.counted {
			want += len(AppendInterfaces(dev, nil))
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
	h, tree := cgroupstest.New(t)
	f := newSource(t, tree)
	h.Write("/crun.scope", map[string]string{"cgroup.procs": ""})
	h.Write("/crun.scope/container", map[string]string{"cgroup.procs": "7\n8\n"})
	h.Write("/runc.scope", map[string]string{"cgroup.procs": "9\n"})
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
		if got := deviceOf(folder); got != "/dev/root" {
			t.Errorf("%s is on %s", folder, got)
		}
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
	h, tree := cgroupstest.New(t)
	f := newSource(t, tree)
	if got := f.pressure(); got != nil {
		t.Errorf("of a kernel that tells none: %+v", got)
	}
	line := func(avg int) string {
		return fmt.Sprintf("some avg10=%d.50 avg60=0.00 avg300=0.00 total=9\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=0\n", avg)
	}
	h.Write("/", map[string]string{"cpu.pressure": line(1), "memory.pressure": line(2), "io.pressure": line(3)})
	if got := f.pressure(); got == nil || *got != (local.Pressure{CPU: 1.5, Memory: 2.5, IO: 3.5}) {
		t.Errorf("%+v", got)
	}
}
