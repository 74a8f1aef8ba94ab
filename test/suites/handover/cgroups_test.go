//go:build adopt

package handover

import (
	"encoding/json"
	"fmt"
	"os"
	"path"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
)

// qosSettle is longer than the kubelet's period for the groups of the classes.
const qosSettle = 75 * time.Second

// cgroupRecord is a pod with the values of its groups, by the group ("pod",
// "sandbox" or the container's name) and the file. The file oom_score_adj is
// of the container's process.
type cgroupRecord struct {
	Pod    *v1.Pod                      `json:"pod"`
	Values map[string]map[string]string `json:"values"`
}

// cgroupRecords are all that one agent has made: the groups above the pods by
// their path, and the pods.
type cgroupRecords struct {
	Node map[string]string            `json:"node"` // what the values depend on
	Top  map[string]map[string]string `json:"top"`
	Pods []cgroupRecord               `json:"pods"`
}

// cgroupRecordings is where the kubelet's values are kept, for tests without a
// board.
const cgroupRecordings = "../../../agent/container/criconfig/testdata"

// TestCgroupValues starts the same pods with a stock kubelet and with tinylet,
// and compares the values in the files of their groups: without and with
// memory QoS. With RECORD=1 it keeps the kubelet's.
func TestCgroupValues(t *testing.T) {
	t.Run("as a kubelet comes", func(t *testing.T) { compareCgroups(t, false, "kubelet-cgroups.json") })
	t.Run("memory QoS", func(t *testing.T) { compareCgroups(t, true, "kubelet-cgroups-memoryqos.json") })
}

func compareCgroups(t *testing.T, memoryQoS bool, recording string) {
	l := newLabWith(t, labOptions{memoryMB: 2048, cpus: 4, cmdline: "hugepages=16", memoryQoS: memoryQoS})
	l.stopTinylet()
	pods := cgroupPods()
	var kubelet, tinylet *cgroupRecords
	l.step("a stock kubelet starts the pods", func() {
		l.putPods(pods)
		k := l.startKubelet()
		l.eventually("they run", func() (string, bool) {
			got, err := l.kubeletPods()
			if err != nil {
				return err.Error(), false
			}
			return allRun(pods, got)
		})
		l.wait(qosSettle)
		kubelet = l.cgroupRecords(pods)
		k.stop()
	})
	if os.Getenv("RECORD") != "" {
		text, err := json.MarshalIndent(kubelet, "", " ")
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path.Join(cgroupRecordings, recording), append(text, '\n'), 0o644); err != nil {
			t.Fatal(err)
		}
		l.say("recorded in %s", recording)
	}
	// A kubelet takes minutes for it, and on a board that is so busy that
	// containerd loses a container it never comes to an end.
	l.step("tinylet takes them over, and ends them", func() {
		l.removePods(pods)
		l.startTinylet()
		l.nothingLeft()
	})
	l.step("tinylet starts them", func() {
		l.putPods(pods)
		l.eventually("they run", func() (string, bool) {
			got, err := l.ps()
			if err != nil {
				return "it does not answer yet", false
			}
			return allRun(pods, got)
		})
		l.wait(5 * time.Second)
		tinylet = l.cgroupRecords(pods)
	})
	for _, records := range []*cgroupRecords{kubelet, tinylet} {
		delete(records.Top["kubepods"], "cpuset.cpus") // all CPUs, by name with the kubelet
	}
	if d := cmp.Diff(kubelet.Top, tinylet.Top); d != "" {
		t.Errorf("groups of the classes, of the stock kubelet (-) and of tinylet (+):\n%s", d)
	}
	for i := range kubelet.Pods {
		if d := cmp.Diff(kubelet.Pods[i].Values, tinylet.Pods[i].Values); d != "" {
			t.Errorf("%s, of the stock kubelet (-) and of tinylet (+):\n%s", kubelet.Pods[i].Pod.Name, d)
		}
	}
}

func (l *lab) putPods(pods []*v1.Pod) {
	l.t.Helper()
	for _, p := range pods {
		text, err := json.Marshal(p)
		if err != nil {
			l.t.Fatal(err)
		}
		if err := l.vm.Put(l.t.Context(), path.Join(manifestDir, p.Name+".json"), strings.NewReader(string(text)), 0o644); err != nil {
			l.t.Fatal(err)
		}
	}
	l.say("%d manifests are there", len(pods))
}

func (l *lab) removePods(pods []*v1.Pod) {
	l.t.Helper()
	for _, p := range pods {
		l.shell("rm " + path.Join(manifestDir, p.Name+".json"))
	}
	l.say("the manifests are removed")
}

// asked is a limit of the CPU as it was written. On a board that is too busy
// to keep to a period, the kernel doubles quota and period of a group by itself
// (sched_cfs_period_timer in kernel/sched/fair.c: "period too short").
func asked(limit string) string {
	const period = 100000 // of both agents
	var quota, in int
	if n, err := fmt.Sscanf(limit, "%d %d", &quota, &in); n != 2 || err != nil {
		return limit // without a limit
	}
	for in > period && in%2 == 0 && quota%2 == 0 {
		quota, in = quota/2, in/2
	}
	return fmt.Sprintf("%d %d", quota, in)
}

// allRun says which pods do not run with all their containers.
func allRun(pods []*v1.Pod, got map[string]outcome) (missing string, ok bool) {
	for _, p := range pods {
		name := p.Name + "-board"
		if o := got[name]; o.phase != "Running" || o.ready < len(p.Spec.Containers) {
			missing += fmt.Sprintf("%s is %q with %d ready; ", name, o.phase, o.ready)
		}
	}
	return missing, missing == ""
}

// cgroupFiles are the files that limit; cpuset.cpus is a CPU policy's.
var cgroupFiles = []string{
	"cpu.weight", "cpu.max", "memory.max", "memory.min", "memory.low", "memory.high", "memory.oom.group", "memory.swap.max",
	"pids.max", "hugetlb.2MB.max", "hugetlb.2MB.rsvd.max", "cpuset.cpus", "io.weight",
}

// cgroupRecords reads the groups of the pods.
func (l *lab) cgroupRecords(pods []*v1.Pod) *cgroupRecords {
	l.t.Helper()
	names := make([]string, len(cgroupFiles))
	for i, f := range cgroupFiles {
		names[i] = "-name " + f
	}
	out := l.shell("cd /sys/fs/cgroup && find kubepods -type f \\( " + strings.Join(names, " -o ") + " \\) -exec grep -H '' {} +")
	values := map[string]map[string]string{} // by the group's path
	for line := range strings.Lines(out) {
		file, value, ok := strings.Cut(strings.TrimSuffix(line, "\n"), ":")
		if !ok {
			l.t.Fatalf("no value: %q", line)
		}
		dir, name := path.Split(file)
		dir = path.Clean(dir)
		if values[dir] == nil {
			values[dir] = map[string]string{}
		}
		if name == "cpu.max" {
			value = asked(value)
		}
		values[dir][name] = value
	}
	records := &cgroupRecords{Top: map[string]map[string]string{}, Node: map[string]string{
		"memory": strings.TrimSpace(l.shell("awk '/^MemTotal/{print $2*1024}' /proc/meminfo")),
		"cpus":   strings.TrimSpace(l.shell("grep -c ^processor /proc/cpuinfo")),
		"kernel": strings.TrimSpace(l.shell("uname -r")),
	}}
	for _, top := range []string{"kubepods", "kubepods/burstable", "kubepods/besteffort"} {
		records.Top[top] = values[top]
	}
	inv := l.inventory()
	groups := map[string]string{} // names of groups, by their IDs
	pids := map[string]int{}
	for _, s := range inv.Sandboxes {
		groups[s.ID], pids[s.ID] = "sandbox", s.PID
	}
	for _, c := range newest(inv) {
		if c.State == "RUNNING" {
			groups[c.ID], pids[c.ID] = c.Name, c.PID
		}
	}
	for _, p := range pods {
		record := cgroupRecord{Pod: p, Values: map[string]map[string]string{}}
		for dir, files := range values {
			base := path.Base(dir)
			switch {
			case base == "pod"+string(p.UID):
				record.Values["pod"] = files
			case path.Base(path.Dir(dir)) == "pod"+string(p.UID) && groups[base] != "":
				files["oom_score_adj"] = strings.TrimSpace(l.shell("cat /proc/" + strconv.Itoa(pids[base]) + "/oom_score_adj"))
				record.Values[groups[base]] = files
			}
		}
		if len(record.Values) < 2+len(p.Spec.Containers) {
			l.t.Fatalf("%s has only the groups %v", p.Name, record.Values)
		}
		records.Pods = append(records.Pods, record)
	}
	return records
}
