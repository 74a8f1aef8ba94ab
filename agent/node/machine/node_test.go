package machine

import (
	"math"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// machine is a /proc and /sys of a board.
func machine(t *testing.T, meminfo string, pages map[string]string) Roots {
	t.Helper()
	r := Roots{Proc: t.TempDir(), Sys: t.TempDir()}
	write := func(path, text string) {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write(filepath.Join(r.Proc, "meminfo"), meminfo)
	for size, n := range pages {
		write(filepath.Join(r.Sys, "kernel/mm/hugepages", "hugepages-"+size, "nr_hugepages"), n)
	}
	return r
}

func TestCapacity(t *testing.T) {
	for _, row := range []struct {
		name    string
		meminfo string
		pages   map[string]string
		want    map[v1.ResourceName]string
	}{
		{"a board", "MemTotal:         498692 kB\nMemFree: 1 kB\n", map[string]string{"2048kB": "4\n", "1048576kB": "0\n"},
			map[v1.ResourceName]string{v1.ResourceMemory: "498692Ki", "hugepages-2Mi": "8Mi", "hugepages-1Gi": "0", v1.ResourcePods: "20"}},
		{"sizes that are none", "MemTotal: 1 kB\n", map[string]string{"kB": "4", "-2kB": "4", "64kB": "x", "9999999999999kB": "1", "32kB": "99999999999999999"},
			map[v1.ResourceName]string{v1.ResourceMemory: "1Ki", v1.ResourcePods: "20"}},
		{"no memory told", "MemTotal: much\n", nil, map[v1.ResourceName]string{v1.ResourcePods: "20"}},
	} {
		t.Run(row.name, func(t *testing.T) {
			got := Capacity(machine(t, row.meminfo, row.pages), 20, 0)
			if cpu := got[v1.ResourceCPU]; cpu.Value() < 1 {
				t.Errorf("cpu %s", cpu.String())
			}
			delete(got, v1.ResourceCPU)
			if len(got) != len(row.want) {
				t.Errorf("got %v, want %v", got, row.want)
			}
			for name, want := range row.want {
				if q := got[name]; q.Cmp(resource.MustParse(want)) != 0 {
					t.Errorf("%s is %s, want %s", name, q.String(), want)
				}
			}
		})
	}
}

func TestPods(t *testing.T) {
	cpus := int64(runtime.NumCPU())
	for _, row := range []struct {
		maxPods, perCore int32
		want             int64
	}{
		{110, 0, 110},
		{math.MaxInt32, 5, 5 * cpus},
		{math.MaxInt32, math.MaxInt32, math.MaxInt32},
		{1, 5, 1},
	} {
		list := Capacity(Roots{}, row.maxPods, row.perCore)
		if got := list.Pods().Value(); got != row.want {
			t.Errorf("%d pods for maxPods %d and podsPerCore %d, want %d", got, row.maxPods, row.perCore, row.want)
		}
	}
}

// TestMemoryOfAContainer: in a container, the capacity is the memory limit of its
// cgroup.
func TestMemoryOfAContainer(t *testing.T) {
	for _, row := range []struct {
		name, max, current string
		total, available   uint64
	}{
		{"a limit", "67108864\n", "16777216\n", 64 << 20, 48 << 20},
		{"little left at the host", "67108864\n", "0\n", 64 << 20, 60 << 20},
		{"more is used than may be", "67108864\n", "77108864\n", 64 << 20, 0},
		{"no limit", "max\n", "0\n", 100 << 20, 60 << 20},
		{"a limit above the machine", "9007199254740992\n", "0\n", 100 << 20, 60 << 20},
		{"no group", "", "", 100 << 20, 60 << 20},
	} {
		t.Run(row.name, func(t *testing.T) {
			r := machine(t, "MemTotal: 102400 kB\nMemAvailable: 61440 kB\n", nil)
			for name, text := range map[string]string{"memory.max": row.max, "memory.current": row.current} {
				file := filepath.Join(r.Sys, "fs/cgroup", name)
				if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
					t.Fatal(err)
				}
				if text == "" {
					continue
				}
				if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			m, err := readMeminfo(r)
			if err != nil || m.Memory != row.total || m.Available != row.available {
				t.Errorf("%d bytes, %d available (%v), want %d and %d", m.Memory, m.Available, err, row.total, row.available)
			}
		})
	}
}

func TestEnforced(t *testing.T) {
	r := machine(t, "MemTotal: 102400 kB\nSwapTotal: 2048 kB\n", nil)
	for name, text := range map[string]string{"pid_max": "32768\n", "threads-max": "1500\n"} {
		file := filepath.Join(r.Proc, "sys/kernel", name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := EnforcedAllocatable(Capacity(r, 20, 0), Reserved{
		Kube: map[string]string{"memory": "10Mi", "pid": "100"}, System: map[string]string{"memory": "10Mi"},
		EvictionHard: map[string]string{"memory.available": "50Mi"}, // is not taken off
	}, r)
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[v1.ResourceName]string{v1.ResourceMemory: "80Mi", ResourcePIDs: "1400"} {
		if q := got[name]; q.Cmp(resource.MustParse(want)) != 0 {
			t.Errorf("%s is %s, want %s", name, q.String(), want)
		}
	}
	if _, err := EnforcedAllocatable(nil, Reserved{Kube: map[string]string{"memory": "much"}}, r); err == nil || !strings.Contains(err.Error(), "kubeReserved[memory]") {
		t.Errorf("a reserve that is no quantity: %v", err)
	}
	if _, err := EnforcedAllocatable(nil, Reserved{Kube: map[string]string{"pid": "2000"}}, r); err == nil || !strings.Contains(err.Error(), "2k of pid are reserved, but the capacity is 1500") {
		t.Errorf("more process IDs than there are: %v", err)
	}
	if got := Swap(r); got != 2<<20 {
		t.Errorf("%d bytes of swap", got)
	}
}

func TestStorageOfAFolderToCome(t *testing.T) {
	dir := t.TempDir()
	if a, b := storage(dir), storage(filepath.Join(dir, "not", "yet")); a == 0 || a != b {
		t.Errorf("%d bytes, and %d for a folder below that does not exist", a, b)
	}
}

func TestAllocatable(t *testing.T) {
	capacity := v1.ResourceList{
		v1.ResourceCPU: resource.MustParse("4"), v1.ResourceMemory: resource.MustParse("512Mi"),
		v1.ResourceEphemeralStorage: resource.MustParse("1000Mi"),
	}
	for _, row := range []struct {
		name     string
		reserved Reserved
		want     map[v1.ResourceName]string
		err      string
	}{
		{name: "nothing reserved", want: map[v1.ResourceName]string{v1.ResourceCPU: "4", v1.ResourceMemory: "512Mi"}},
		{
			name: "reserved and kept free",
			reserved: Reserved{
				Kube: map[string]string{"cpu": "500m", "memory": "64Mi", "pid": "100"}, System: map[string]string{"cpu": "500m"},
				EvictionHard: map[string]string{"memory.available": "16Mi", "nodefs.available": "10%", "imagefs.available": "15%"},
			},
			want: map[v1.ResourceName]string{v1.ResourceCPU: "3", v1.ResourceMemory: "432Mi", v1.ResourceEphemeralStorage: "943718399"},
		},
		{name: "all that there is", reserved: Reserved{System: map[string]string{"memory": "512Mi"}}, want: map[v1.ResourceName]string{v1.ResourceMemory: "0"}},
		// The result was 0, for which kubepods got no limit.
		{name: "more than there is", reserved: Reserved{System: map[string]string{"memory": "2Gi"}}, err: "2Gi of memory are reserved, but the capacity is 512Mi; lower kubeReserved"},
		{name: "together more than there is", reserved: Reserved{Kube: map[string]string{"cpu": "2500m"}, System: map[string]string{"cpu": "2"}}, err: "4500m of cpu are reserved, but the capacity is 4;"},
		{name: "kept free beyond what there is", reserved: Reserved{EvictionHard: map[string]string{"memory.available": "1Gi"}}, want: map[v1.ResourceName]string{v1.ResourceMemory: "0"}},
		{
			name:     "a percentage is reckoned as the kubelet does, to the byte",
			reserved: Reserved{EvictionHard: map[string]string{"memory.available": "5%", "nodefs.available": "33.3%"}},
			// 512Mi - int64(512Mi * float32(5)/100), and so on.
			want: map[v1.ResourceName]string{v1.ResourceMemory: "510027366", v1.ResourceEphemeralStorage: "699400188"},
		},
		{name: "no quantity", reserved: Reserved{Kube: map[string]string{"cpu": "much"}}, err: "kubeReserved[cpu]"},
		{name: "no percentage", reserved: Reserved{EvictionHard: map[string]string{"memory.available": "200%"}}, err: "evictionHard[memory.available]"},
	} {
		t.Run(row.name, func(t *testing.T) {
			got, err := Allocatable(capacity, row.reserved)
			if row.err != "" {
				if err == nil || !strings.Contains(err.Error(), row.err) {
					t.Fatalf("error %v, want %s in it", err, row.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			for name, want := range row.want {
				if q := got[name]; q.Cmp(resource.MustParse(want)) != 0 {
					t.Errorf("%s is %s, want %s", name, q.String(), want)
				}
			}
			if q := capacity[v1.ResourceMemory]; q.String() != "512Mi" {
				t.Errorf("the capacity was changed to %s", q.String())
			}
		})
	}
}

func TestHugePagesAreCutFromMemory(t *testing.T) {
	for _, row := range []struct{ pages, want string }{{"128Mi", "320Mi"}, {"0", "448Mi"}, {"1Gi", "0"}} {
		got, err := Allocatable(v1.ResourceList{
			v1.ResourceMemory: resource.MustParse("512Mi"), "hugepages-2Mi": resource.MustParse(row.pages),
		}, Reserved{Kube: map[string]string{"memory": "64Mi"}})
		if err != nil {
			t.Fatal(err)
		}
		memory, pages := got[v1.ResourceMemory], got["hugepages-2Mi"]
		if memory.Cmp(resource.MustParse(row.want)) != 0 || pages.Cmp(resource.MustParse(row.pages)) != 0 {
			t.Errorf("with %s of huge pages: memory %s, want %s; pages %s", row.pages, memory.String(), row.want, pages.String())
		}
	}
}

func TestLabels(t *testing.T) {
	got := Labels("board", map[string]string{"site": "roof", v1.LabelHostname: "other"})
	if got["site"] != "roof" || got[v1.LabelHostname] != "other" || got[v1.LabelOSStable] != "linux" || got[v1.LabelArchStable] == "" ||
		got["beta.kubernetes.io/os"] != "linux" || got["beta.kubernetes.io/arch"] != got[v1.LabelArchStable] {
		t.Errorf("labels %v", got)
	}
}
