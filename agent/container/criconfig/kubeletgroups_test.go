package criconfig

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/tinylet/tinylet/agent/source/manifest"
	"github.com/tinylet/tinylet/cgroups"
)

// recorded is what a stock kubelet 1.36.3 with containerd and crun has written
// into the groups of pods on an emulated board (`make compare-cgroups` with
// RECORD=1 writes it again).
type recorded struct {
	Node map[string]string
	Top  map[string]map[string]string
	Pods []struct {
		Pod    *v1.Pod
		Values map[string]map[string]string
	}
}

func readRecorded(t *testing.T, file string) (r recorded, n *Node) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", file))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &r); err != nil {
		t.Fatal(err)
	}
	if len(r.Pods) < 25 {
		t.Fatalf("only %d pods are recorded", len(r.Pods))
	}
	memory, err := strconv.ParseInt(r.Node["memory"], 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return r, &Node{
		MemoryCapacity: memory, MemoryUnreserved: memory, MemoryAccounting: true, SwapAccounting: true, CPUCFSQuota: true,
		HugePageSizes: []string{"2MB"}, HugePageAccounting: true,
		EnforcedAllocatable: v1.ResourceList{
			v1.ResourceCPU: resource.MustParse(r.Node["cpus"]), v1.ResourceMemory: *resource.NewQuantity(memory, resource.BinarySI),
			resourcePIDs: resource.MustParse(r.Top["kubepods"]["pids.max"]),
		},
	}
}

// TestGroupsOfKubelet compares what is written into cgroups with what the kubelet
// writes, by default and with memory QoS.
func TestGroupsOfKubelet(t *testing.T) {
	t.Run("as a kubelet comes", func(t *testing.T) { compareRecorded(t, "kubelet-cgroups.json", false) })
	t.Run("memory QoS", func(t *testing.T) { compareRecorded(t, "kubelet-cgroups-memoryqos.json", true) })
}

func compareRecorded(t *testing.T, file string, memoryQoS bool) {
	r, n := readRecorded(t, file)
	if memoryQoS {
		n.MemoryQoS, n.MemoryThrottling = true, 0.9
	}
	var pods []*v1.Pod
	for _, p := range r.Pods {
		manifest.Default(p.Pod)
		pods = append(pods, p.Pod)
	}
	for _, g := range ParentCgroups(pods, n) {
		compareFiles(t, g.Path, r.Top[strings.TrimPrefix(g.Path, "/")], filesOf(g.Resources))
	}
	for _, p := range r.Pods {
		compareFiles(t, p.Pod.Name, p.Values["pod"], filesOf(PodResources(p.Pod, n)))
		for i := range p.Pod.Spec.Containers {
			c := &p.Pod.Spec.Containers[i]
			compareFiles(t, p.Pod.Name+"/"+c.Name, p.Values[c.Name], filesOfContainer(containerResources(p.Pod, c, n)))
		}
	}
}

// filesOf returns the files of a cgroup; one that is not written has the kernel's
// default.
func filesOf(r cgroups.Resources) map[string]string {
	files := map[string]string{
		"cpu.weight": "100", "cpu.max": "max 100000", "memory.max": "max", "memory.min": "0", "memory.low": "0", "memory.high": "max",
		"pids.max": "max", "hugetlb.2MB.max": "max", "hugetlb.2MB.rsvd.max": "max", "memory.oom.group": "0", "memory.swap.max": "max",
	}
	set := func(file string, value int64) {
		if value > 0 {
			files[file] = strconv.FormatInt(value, 10)
		}
	}
	set("cpu.weight", int64(r.CPUWeight))
	set("memory.max", r.MemoryMax&^4095) // the kernel counts pages
	set("pids.max", r.PidsMax)
	if r.CPUMax.Quota > 0 {
		files["cpu.max"] = strconv.FormatInt(r.CPUMax.Quota, 10) + " " + strconv.FormatUint(r.CPUMax.Period, 10)
	}
	for file, value := range r.Unified {
		if bytes, err := strconv.ParseInt(value, 10, 64); err == nil && strings.HasPrefix(file, "memory.") && file != "memory.oom.group" {
			value = strconv.FormatInt(bytes&^4095, 10) // as above
		}
		files[file] = value
	}
	return files
}

// filesOfContainer are those that crun 1.21 makes of what CRI gives it.
// containerd leaves huge pages to the pod's group.
func filesOfContainer(r *runtimeapi.LinuxContainerResources) map[string]string {
	files := filesOf(cgroups.Resources{
		CPUWeight: cpuWeight(r.GetCpuShares()), MemoryMax: r.GetMemoryLimitInBytes(), Unified: r.GetUnified(),
		CPUMax: cgroups.CPUMax{Quota: r.GetCpuQuota(), Period: uint64(r.GetCpuPeriod())},
	})
	files["oom_score_adj"] = strconv.FormatInt(r.GetOomScoreAdj(), 10)
	return files
}

func compareFiles(t *testing.T, where string, kubelet, tinylet map[string]string) {
	t.Helper()
	if len(kubelet) == 0 {
		t.Errorf("%s is not recorded", where)
	}
	for file, want := range kubelet {
		if got, ok := tinylet[file]; ok && got != want {
			t.Errorf("%s: %s is %q, the kubelet's %q", where, file, got, want)
		}
	}
}
