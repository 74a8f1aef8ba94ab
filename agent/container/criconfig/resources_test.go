package criconfig

import (
	"fmt"
	"math"
	"path"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/tinylet/tinylet/cgroups"
)

// needs is a container with requests and limits of CPU and memory; "" is
// none.
func needs(cpuRequest, cpuLimit, memRequest, memLimit string) v1.Container {
	var c v1.Container
	put := func(list *v1.ResourceList, name v1.ResourceName, value string) {
		if value == "" {
			return
		}
		if *list == nil {
			*list = v1.ResourceList{}
		}
		(*list)[name] = resource.MustParse(value)
	}
	put(&c.Resources.Requests, v1.ResourceCPU, cpuRequest)
	put(&c.Resources.Limits, v1.ResourceCPU, cpuLimit)
	put(&c.Resources.Requests, v1.ResourceMemory, memRequest)
	put(&c.Resources.Limits, v1.ResourceMemory, memLimit)
	return c
}

func podOf(containers ...v1.Container) *v1.Pod {
	return &v1.Pod{Spec: v1.PodSpec{Containers: containers}}
}

func TestPodResources(t *testing.T) {
	always := v1.ContainerRestartPolicyAlways
	sidecar := needs("200m", "", "", "")
	sidecar.RestartPolicy = &always
	limited := needs("200m", "200m", "", "")
	limited.RestartPolicy = &always
	for _, tc := range []struct {
		name string
		init []v1.Container
		run  []v1.Container
		edit func(*Node)
		want cgroups.Resources
	}{
		{"best effort", nil, []v1.Container{needs("", "", "", "")}, nil, cgroups.Resources{CPUWeight: 1}},
		{"guaranteed", nil, []v1.Container{needs("1", "1", "1Mi", "1Mi")}, nil, cgroups.Resources{
			CPUWeight: 39, CPUMax: cgroups.CPUMax{Quota: 100000, Period: 100000}, MemoryMax: 1 << 20,
		}},
		{"one goes without", nil, []v1.Container{needs("500m", "1", "", "1Mi"), needs("500m", "", "", "1Mi")}, nil, cgroups.Resources{
			CPUWeight: 39, MemoryMax: 2 << 20,
		}},
		{"an init container goes without", []v1.Container{needs("", "", "", "")}, []v1.Container{needs("1", "1", "1Mi", "1Mi")}, nil, cgroups.Resources{
			CPUWeight: 39,
		}},
		{"a large init container", []v1.Container{needs("1", "2", "", "9Mi"), needs("2", "2", "", "1Mi")}, []v1.Container{needs("1", "1", "", "1Mi")}, nil, cgroups.Resources{
			CPUWeight: 79, CPUMax: cgroups.CPUMax{Quota: 200000, Period: 100000}, MemoryMax: 9 << 20,
		}},
		{"a sidecar's limit is that of who comes after", []v1.Container{limited, needs("", "", "", "")}, []v1.Container{needs("1", "1", "", "")}, nil, cgroups.Resources{
			CPUWeight: 47, CPUMax: cgroups.CPUMax{Quota: 120000, Period: 100000},
		}},
		{"sidecars run on", []v1.Container{needs("100m", "", "", ""), sidecar, needs("700m", "", "", "")}, []v1.Container{needs("800m", "", "", "")}, nil, cgroups.Resources{
			CPUWeight: 39,
		}},
		{"no quotas, few tasks", nil, []v1.Container{needs("1", "1", "1Mi", "1Mi")}, func(n *Node) { n.CPUCFSQuota, n.PodPidsLimit = false, 64 }, cgroups.Resources{
			CPUWeight: 39, CPUMax: cgroups.CPUMax{Quota: cgroups.Unlimited, Period: 100000}, MemoryMax: 1 << 20, PidsMax: 64,
		}},
		{"the least quota", nil, []v1.Container{needs("1m", "1m", "1", "1")}, nil, cgroups.Resources{
			CPUWeight: 1, CPUMax: cgroups.CPUMax{Quota: 1000, Period: 100000}, MemoryMax: 1,
		}},
		{"absurd", nil, []v1.Container{needs("9E", "9E", "99E", "99E")}, nil, cgroups.Resources{
			CPUWeight: 10000, CPUMax: cgroups.CPUMax{Quota: 100_000_000_000_000, Period: 100000}, MemoryMax: math.MaxInt64,
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p, n := podOf(tc.run...), board()
			p.Spec.InitContainers = tc.init
			if tc.edit != nil {
				tc.edit(n)
			}
			if diff := cmp.Diff(tc.want, PodResources(p, n), cmpopts.EquateEmpty()); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestGroups(t *testing.T) {
	pods := []*v1.Pod{
		podOf(needs("500m", "", "8Mi", "")),
		podOf(needs("524m", "", "4Mi", "8Mi")),
		podOf(needs("1", "1", "1Mi", "1Mi")),
		podOf(needs("", "", "", "")),
	}
	n := &Node{
		EnforcedAllocatable: v1.ResourceList{v1.ResourceCPU: resource.MustParse("4"), v1.ResourceMemory: resource.MustParse("200Mi"), resourcePIDs: resource.MustParse("900")},
		MemoryAccounting:    true, MemoryQoS: true, HugePageAccounting: true, HugePageSizes: []string{"2MB"},
	}
	huge := func(files map[string]string) map[string]string {
		files["hugetlb.2MB.max"], files["hugetlb.2MB.rsvd.max"] = "4611686018427387904", "4611686018427387904"
		return files
	}
	want := []Cgroup{
		{"/kubepods", cgroups.Resources{CPUWeight: 157, MemoryMax: 200 << 20, PidsMax: 900, Unified: huge(map[string]string{"memory.min": "13631488"})}},
		{"/kubepods/burstable", cgroups.Resources{CPUWeight: 40, Unified: huge(map[string]string{"memory.low": "12582912"})}},
		{"/kubepods/besteffort", cgroups.Resources{CPUWeight: 1, Unified: huge(map[string]string{})}},
	}
	if diff := cmp.Diff(want, ParentCgroups(pods, n)); diff != "" {
		t.Error(diff)
	}
	n.MemoryQoS = false
	if got := ParentCgroups(pods, n); got[0].Resources.Unified["memory.min"] != "0" || got[1].Resources.Unified["memory.low"] != "0" {
		t.Errorf("what is switched off is not taken back: %v", got)
	}
	n.MemoryAccounting, n.HugePageAccounting = false, false
	for _, g := range ParentCgroups(pods, n) {
		if len(g.Resources.Unified) > 0 || g.Resources.MemoryMax != 0 {
			t.Errorf("without accounting: %+v", g)
		}
	}
}

// TestProtectionIsTakenBack checks that the protection from before a resize, or
// from another configuration, is reset.
func TestProtectionIsTakenBack(t *testing.T) {
	for _, tc := range []struct {
		name     string
		c        v1.Container
		qos      bool
		min, low string
	}{
		{"guaranteed", needs("1", "1", "1Mi", "1Mi"), true, "1048576", "0"},
		{"burstable", needs("1", "", "1Mi", ""), true, "0", "1048576"},
		{"asks for no memory any more", needs("1", "", "0", ""), true, "0", "0"},
		{"switched off", needs("1", "1", "1Mi", "1Mi"), false, "0", "0"},
	} {
		files := PodResources(podOf(tc.c), &Node{MemoryAccounting: true, MemoryQoS: tc.qos}).Unified
		if files["memory.min"] != tc.min || files["memory.low"] != tc.low {
			t.Errorf("%s: %v, want %s and %s", tc.name, files, tc.min, tc.low)
		}
	}
}

func TestCPUWeight(t *testing.T) {
	for shares, want := range map[int64]uint64{0: 1, 2: 1, 3: 1, 102: 4, 1024: 39, 2048: 79, 262143: 9999, 262144: 10000, math.MaxInt64: 10000} {
		if got := cpuWeight(shares); got != want {
			t.Errorf("%d shares weigh %d, want %d", shares, got, want)
		}
	}
}

// TestMemoryQoS checks which memory is protected and where a container is
// throttled. The request, if any, is 100 MiB. Of the node's memory 416 MiB are
// not reserved and 400 MiB are for pods.
func TestMemoryQoS(t *testing.T) {
	for _, tc := range []struct {
		name           string
		c              v1.Container
		edit           func(*Node)
		min, low, high string
	}{
		{"guaranteed", needs("1", "1", "100Mi", "100Mi"), nil, "104857600", "", ""},
		{"burstable", needs("", "", "100Mi", "200Mi"), nil, "", "104857600", "199229440"},
		{"request alone", needs("", "", "100Mi", ""), nil, "", "104857600", "403070976"},
		{"limit alone", needs("", "", "", "100Mi"), nil, "", "", "94371840"},
		{"CPU alone", needs("1", "", "", ""), nil, "", "", ""},
		{"best effort", needs("", "", "", ""), nil, "", "", ""},
		{"no more than the request to be had", needs("", "", "416Mi", ""), nil, "", "436207616", ""},
		{"a request above all", needs("", "", "500Mi", ""), nil, "", "524288000", ""},
		{"no protection", needs("", "", "100Mi", "200Mi"), func(n *Node) { n.MemoryQoS = false }, "", "", "199229440"},
		{"no throttling", needs("", "", "100Mi", "200Mi"), func(n *Node) { n.MemoryThrottling = 0 }, "", "104857600", ""},
		{"absurd", needs("", "", "8E", "9E"), nil, "", "8000000000000000000", "8900000000000000000"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			n := board()
			n.MemoryQoS, n.MemoryThrottling = true, 0.9
			if tc.edit != nil {
				tc.edit(n)
			}
			p := podOf(tc.c)
			got := containerResources(p, &p.Spec.Containers[0], n).GetUnified()
			for file, want := range map[string]string{"memory.min": tc.min, "memory.low": tc.low, "memory.high": tc.high} {
				if got[file] != want {
					t.Errorf("%s is %q, want %q", file, got[file], want)
				}
			}
		})
	}
}

func TestSwapLimit(t *testing.T) {
	critical := func(p *v1.Pod, _ *Node) { p.Spec.Priority = new(int32); *p.Spec.Priority = 2_000_000_000 }
	for _, tc := range []struct {
		name string
		c    v1.Container
		edit func(*v1.Pod, *Node)
		want string
	}{
		{"a quarter of the memory", needs("", "", "128Mi", "256Mi"), nil, "67108864"},
		{"no request", needs("", "", "", "256Mi"), nil, "0"},
		{"guaranteed", needs("1", "1", "128Mi", "128Mi"), nil, "0"},
		{"request is limit", needs("1", "", "128Mi", "128Mi"), nil, "0"},
		{"best effort", needs("", "", "", ""), nil, "0"},
		{"critical", needs("", "", "128Mi", "256Mi"), critical, "0"},
		{"more than there is", needs("", "", "1Gi", "2Gi"), nil, "0"},
		{"not let", needs("", "", "128Mi", "256Mi"), func(_ *v1.Pod, n *Node) { n.LimitedSwap = false }, "0"},
		{"no accounting", needs("", "", "128Mi", "256Mi"), func(_ *v1.Pod, n *Node) { n.SwapAccounting = false }, ""},
		{"memory not known", needs("", "", "128Mi", "256Mi"), func(_ *v1.Pod, n *Node) { n.MemoryCapacity = 0 }, "0"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			n, p := board(), podOf(tc.c)
			n.LimitedSwap, n.SwapCapacity = true, 256<<20
			if tc.edit != nil {
				tc.edit(p, n)
			}
			if got := containerResources(p, &p.Spec.Containers[0], n).GetUnified()["memory.swap.max"]; got != tc.want {
				t.Errorf("memory.swap.max is %q, want %q", got, tc.want)
			}
		})
	}
}

func TestOOMScoreAdj(t *testing.T) {
	for _, tc := range []struct {
		name     string
		c        v1.Container
		capacity int64
		want     int64
	}{
		{"best effort", needs("", "", "", ""), 1 << 30, 1000},
		{"guaranteed", needs("1", "1", "1Mi", "1Mi"), 1 << 30, -997},
		{"no memory asked for", needs("1", "", "", ""), 1 << 30, 999},
		{"a quarter", needs("", "", "256Mi", ""), 1 << 30, 750},
		{"a trace", needs("", "", "1", ""), 1 << 30, 999},
		{"nearly all", needs("", "", "1023Mi", ""), 1 << 30, 3},
		{"more than all", needs("", "", "2Gi", ""), 1 << 30, 3},
		{"more than can be", needs("", "", "8Ei", ""), math.MaxInt64, 3},
		{"half of what can be", needs("", "", "4Ei", ""), math.MaxInt64, 500},
		{"capacity unknown", needs("", "", "1Gi", ""), 0, 999},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p := podOf(tc.c)
			if got := oomScoreAdj(p, &p.Spec.Containers[0], tc.capacity); got != tc.want {
				t.Errorf("got %d, want %d", got, tc.want)
			}
		})
	}
}

// TestOOMOfSidecars: a sidecar outlives, or goes with, the least of those
// that it serves (KEP-753), and all share what only the pod asks for
// (KEP-2837).
func TestOOMOfSidecars(t *testing.T) {
	side := needs("", "", "64Mi", "")
	side.RestartPolicy = new(v1.ContainerRestartPolicyAlways)
	own := needs("", "", "1Gi", "").Resources
	for _, tc := range []struct {
		name  string
		init  v1.Container
		run   []v1.Container
		level *v1.ResourceRequirements
		want  []int64 // of the init container, then of the others
	}{
		{"alone", side, []v1.Container{needs("", "", "32Mi", "")}, nil, []int64{938, 969}},
		{"as the least", side, []v1.Container{needs("", "", "512Mi", ""), needs("", "", "256Mi", "")}, nil, []int64{750, 500, 750}},
		{"one asks for nothing", side, []v1.Container{needs("", "", "512Mi", ""), needs("", "", "", "")}, nil, []int64{938, 500, 999}},
		{"no sidecar", needs("", "", "64Mi", ""), []v1.Container{needs("", "", "512Mi", "")}, nil, []int64{938, 500}},
		{"the pod asks for more", side, []v1.Container{needs("", "", "192Mi", ""), needs("", "", "", "")}, &own, []int64{688, 563, 750}},
		{"the pod asks for no memory", side, []v1.Container{needs("", "", "32Mi", "")}, new(needs("1", "", "", "").Resources), []int64{938, 969}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p := podOf(tc.run...)
			for i := range p.Spec.Containers {
				p.Spec.Containers[i].Name = "c"
			}
			tc.init.Name = "side"
			p.Spec.InitContainers, p.Spec.Resources = []v1.Container{tc.init}, tc.level
			got := []int64{oomScoreAdj(p, &p.Spec.InitContainers[0], 1<<30)}
			for i := range p.Spec.Containers {
				got = append(got, oomScoreAdj(p, &p.Spec.Containers[i], 1<<30))
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestPodLevel(t *testing.T) {
	level := func(c v1.Container) *v1.ResourceRequirements { return &c.Resources }
	for _, tc := range []struct {
		name     string
		level    *v1.ResourceRequirements
		c        v1.Container
		overhead v1.ResourceList
		pod      cgroups.Resources
		sandbox  string
		own      string
	}{
		{"limits for all", level(needs("1", "1", "64Mi", "64Mi")), needs("", "", "", ""), nil, cgroups.Resources{
			CPUWeight: 39, CPUMax: cgroups.CPUMax{Quota: 100000, Period: 100000}, MemoryMax: 64 << 20,
		}, "1024 100000 67108864", "1024 100000 67108864"},
		{"a limit of its own", level(needs("2", "2", "", "")), needs("100m", "1", "", ""), nil, cgroups.Resources{
			CPUWeight: 79, CPUMax: cgroups.CPUMax{Quota: 200000, Period: 100000},
		}, "2048 200000 0", "102 100000 0"},
		{"requests of the containers", level(needs("1", "2", "", "")), needs("1", "", "", ""), nil, cgroups.Resources{
			CPUWeight: 39, CPUMax: cgroups.CPUMax{Quota: 200000, Period: 100000},
		}, "1024 200000 0", "1024 200000 0"},
		{"nothing that counts", &v1.ResourceRequirements{Limits: v1.ResourceList{"x": resource.MustParse("1")}}, needs("1", "1", "", ""), nil, cgroups.Resources{
			CPUWeight: 1, // its class is BestEffort all the same
		}, "1024 100000 0", "1024 100000 0"},
		{"overhead", nil, needs("500m", "500m", "", "64Mi"), v1.ResourceList{v1.ResourceCPU: resource.MustParse("500m"), v1.ResourceMemory: resource.MustParse("1Mi")}, cgroups.Resources{
			CPUWeight: 39, CPUMax: cgroups.CPUMax{Quota: 100000, Period: 100000}, MemoryMax: 65 << 20,
		}, "512 50000 67108864", "512 50000 67108864"},
		{"overhead where nothing is limited", nil, needs("500m", "", "", ""), v1.ResourceList{v1.ResourceCPU: resource.MustParse("500m")}, cgroups.Resources{
			CPUWeight: 39,
		}, "512 0 0", "512 0 0"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p, n := podOf(tc.c), board()
			p.Spec.Resources, p.Spec.Overhead = tc.level, tc.overhead
			if diff := cmp.Diff(tc.pod, PodResources(p, n), cmpopts.EquateEmpty()); diff != "" {
				t.Error(diff)
			}
			for name, x := range map[string]struct {
				got  *runtimeapi.LinuxContainerResources
				want string
			}{"sandbox": {sandboxResources(p, n), tc.sandbox}, "container": {containerResources(p, &p.Spec.Containers[0], n), tc.own}} {
				if got := fmt.Sprint(x.got.GetCpuShares(), x.got.GetCpuQuota(), x.got.GetMemoryLimitInBytes()); got != x.want {
					t.Errorf("%s has %s, want %s", name, got, x.want)
				}
			}
		})
	}
}

func TestHugePageLimits(t *testing.T) {
	p := podOf(v1.Container{Name: "c"})
	p.Spec.Resources = &v1.ResourceRequirements{Limits: v1.ResourceList{"hugepages-2Mi": resource.MustParse("8Mi"), "hugepages-1Gi": resource.MustParse("1Gi")}}
	p.Spec.Containers[0].Resources.Limits = v1.ResourceList{
		"hugepages-2048Ki": resource.MustParse("4Mi"), "hugepages-64Ki": resource.MustParse("1Mi"), "hugepages-x": resource.MustParse("1"), "cpu": resource.MustParse("1"),
	}
	n := &Node{HugePageSizes: []string{"64KB", "2MB", "32MB", "1GB"}}
	got := map[string]uint64{}
	for _, l := range hugePageLimits(p, &p.Spec.Containers[0], n) {
		got[l.GetPageSize()] = l.GetLimit()
	}
	if diff := cmp.Diff(map[string]uint64{"64KB": 1 << 20, "2MB": 4 << 20, "32MB": 0, "1GB": 1 << 30}, got); diff != "" {
		t.Error(diff)
	}
}

func TestPodCgroup(t *testing.T) {
	for _, tc := range []struct {
		name   string
		c      v1.Container
		driver string
		root   string
		want   string
	}{
		{"guaranteed", needs("1", "1", "1Mi", "1Mi"), DriverCgroupfs, "", "/kubepods/poda-b"},
		{"burstable", needs("1", "", "", ""), "", "/", "/kubepods/burstable/poda-b"},
		{"best effort below a root", needs("", "", "", ""), DriverCgroupfs, "/x/y/", "/x/y/kubepods/besteffort/poda-b"},
		{"systemd, guaranteed", needs("1", "1", "1Mi", "1Mi"), DriverSystemd, "", "/kubepods.slice/kubepods-poda_b.slice"},
		{"systemd, burstable", needs("1", "", "", ""), DriverSystemd, "/", "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-poda_b.slice"},
		{"systemd, below a root", needs("1", "", "", ""), DriverSystemd, "/x", "/x.slice/x-kubepods.slice/x-kubepods-burstable.slice/x-kubepods-burstable-poda_b.slice"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p := podOf(tc.c)
			p.UID = "a-b"
			if got := PodCgroup(p, &Node{CgroupDriver: tc.driver, CgroupRoot: tc.root}); got != tc.want {
				t.Errorf("got %s, want %s", got, tc.want)
			}
		})
	}
	if got := QoSCgroup(v1.PodQOSBurstable, &Node{}); got != "/kubepods/burstable" {
		t.Errorf("got %s", got)
	}
}

func TestHugePageSize(t *testing.T) {
	for folder, want := range map[string]string{
		"hugepages-64kB": "64KB", "hugepages-2048kB": "2MB", "hugepages-32768kB": "32MB",
		"hugepages-1048576kB": "1GB", "hugepages-16777216kB": "16GB",
		"hugepages-0kB": "", "hugepages-kB": "", "hugepages-2M": "", "x-1kB": "", "hugepages--1kB": "",
	} {
		got, ok := HugePageSize(folder)
		if got != want || ok != (want != "") {
			t.Errorf("%s: got %q, %v", folder, got, ok)
		}
	}
}

func TestContainerCgroup(t *testing.T) {
	for driver, want := range map[string]string{
		DriverCgroupfs: "/kubepods/pod1/abc",
		DriverSystemd:  "/kubepods/pod1/cri-containerd-abc.scope",
	} {
		if got := ContainerCgroup("/kubepods/pod1", "abc", &Node{CgroupDriver: driver}); got != want {
			t.Errorf("%s: %s, want %s", driver, got, want)
		}
	}
}

func TestIOWeight(t *testing.T) {
	for want, priority := range map[string]*int32{"100": nil, "50": new(int32(-1)), "200": new(int32(1)), "400": new(int32(2_000_000_000))} {
		p := podOf(needs("", "", "", ""))
		p.Spec.Priority = priority
		if got := PodResources(p, &Node{IOWeights: true}).Unified["io.weight"]; got != want {
			t.Errorf("%v weighs %q, want %q", priority, got, want)
		}
	}
	if got, ok := PodResources(podOf(), &Node{}).Unified["io.weight"]; ok {
		t.Errorf("it is not asked for, and weighs %q", got)
	}
}

// TestLeftPod checks that the name of a pod's cgroup gives its UID, except for
// underscores in slices.
func TestLeftPod(t *testing.T) {
	classes := []v1.PodQOSClass{v1.PodQOSGuaranteed, v1.PodQOSBurstable, v1.PodQOSBestEffort}
	for _, n := range []*Node{{}, {CgroupRoot: "/x"}, {CgroupDriver: DriverSystemd}, {CgroupDriver: DriverSystemd, CgroupRoot: "/x-y"}} {
		for i, group := range PodCgroups("6f-ab-1", n) {
			for j, class := range classes {
				uid, ok := PodUIDOfCgroup(path.Base(group), class, n)
				if same := i == j || n.CgroupDriver != DriverSystemd; ok != same || ok && uid != "6f-ab-1" {
					t.Errorf("%s in %s: %q, %t", group, class, uid, ok)
				}
			}
		}
		for _, class := range classes {
			for _, name := range []string{"", "pod", "other", path.Base(QoSCgroup(v1.PodQOSBurstable, n)), "kubepods-pod.slice", "cri-containerd-1.scope"} {
				if uid, ok := PodUIDOfCgroup(name, class, n); ok {
					t.Errorf("%q is taken for pod %q", name, uid)
				}
			}
		}
	}
}
