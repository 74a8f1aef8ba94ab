package cgroups

import (
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestLimitsAreReadAndSet(t *testing.T) {
	f := newFake(t, "cpu memory")
	if err := f.Ensure("pods/one", Resources{CPUWeight: 40, CPUMax: CPUMax{Quota: 50000, Period: 100000}}); err != nil {
		t.Fatal(err)
	}
	known := func(n uint64) Number { return Number{n, true} }
	want := Limits{CPUWeight: known(40), CPUQuota: known(50000), CPUPeriod: 100000, MemoryMax: known(NoLimit)}
	if got, err := f.Limits("/pods/one"); err != nil || got != want {
		t.Errorf("got %+v, %v\nwant %+v", got, err, want)
	}
	if err := f.Set("/pods/one", Resources{CPUMax: CPUMax{Quota: Unlimited, Period: 100000}, MemoryMax: 1 << 20}); err != nil {
		t.Fatal(err)
	}
	want.CPUQuota, want.MemoryMax = known(NoLimit), known(1<<20)
	if got, err := f.Limits("/pods/one"); err != nil || got != want {
		t.Errorf("after they were set: %+v, %v\nwant %+v", got, err, want)
	}
	for _, path := range []string{"pods/none", "../one"} {
		if _, err := f.Limits(path); err == nil {
			t.Errorf("%s has limits", path)
		}
		if err := f.Set(path, Resources{MemoryMax: 1}); err == nil {
			t.Errorf("limits were set of %s", path)
		}
	}
	if err := f.Set("pods/none", Resources{MemoryMax: 1}); !errors.Is(err, ErrNotFound) || f.Exists("pods/none") {
		t.Errorf("a group that is not there: %v", err)
	}
	f.put(filepath.Join(f.root, "pods/one", fileCPUMax), "much\n")
	if got, err := f.Limits("pods/one"); err == nil {
		t.Errorf("nonsense gives %+v", got)
	}
}

// What the kernel says to a file that is not there: it makes none.
func TestSetWithoutController(t *testing.T) {
	tree, path := group(t, Resources{})
	for _, r := range []Resources{{MemoryMax: 1 << 20}, {CPUWeight: 2}, {PidsMax: 2}, {Unified: map[string]string{"rdma.max": "1"}}} {
		file := filepath.Join(tree.root, path, r.settings()[0].file)
		if _, err := os.Stat(file); err == nil {
			continue // this machine has the controller
		}
		if err := tree.Set(path, r); !errors.Is(err, ErrController) || !strings.Contains(err.Error(), filepath.Base(file)) {
			t.Errorf("%s: %v", file, err)
		}
		if err := tree.Set(path+"/none", r); !errors.Is(err, ErrNotFound) {
			t.Errorf("%s of no group: %v", filepath.Base(file), err)
		}
	}
}

func TestLimitsWithoutControllers(t *testing.T) {
	f := newFake(t, "")
	if err := f.Ensure("one", Resources{}); err != nil {
		t.Fatal(err)
	}
	got, err := f.Limits("one")
	if diff := cmp.Diff(Limits{}, got); err != nil || diff != "" {
		t.Errorf("%v\n%s", err, diff)
	}
}

// FuzzCPUMax holds the parser against strconv.
func FuzzCPUMax(f *testing.F) {
	f.Add("max 100000\n")
	f.Add("50000 100000\n")
	f.Add("1 0")
	f.Add("max")
	f.Fuzz(func(t *testing.T, in string) {
		var got Limits
		ok := got.parseCPUMax([]byte(in))
		quota, period, _ := strings.Cut(strings.TrimSuffix(in, "\n"), " ")
		n, err := strconv.ParseUint(period, 10, 64)
		want := err == nil && n > 0 && !strings.HasPrefix(period, "+")
		if quota = strings.TrimSuffix(quota, "\n"); quota != "max" {
			_, err := strconv.ParseUint(quota, 10, 64)
			want = want && err == nil
		}
		if ok != want || ok && got.CPUPeriod != n {
			t.Errorf("%q: got %+v %v, want %v", in, got, ok, want)
		}
	})
}

// A limit of tasks that no kernel keeps is none, and no error: a kubelet passes
// over what the kernel says to it.
func TestSetMoreTasksThanThereCanBe(t *testing.T) {
	tree, path := pidsGroup(t)
	for _, tc := range []struct {
		max  int64
		want string
	}{{1000, "1000"}, {1 << 40, "max"}, {1000, "1000"}, {math.MaxInt64, "max"}, {Unlimited, "max"}} {
		if err := tree.Set(path, Resources{PidsMax: tc.max}); err != nil {
			t.Errorf("%d: %v", tc.max, err)
		}
		if got, err := os.ReadFile(filepath.Join(tree.root, path, filePidsMax)); err != nil || strings.TrimSpace(string(got)) != tc.want {
			t.Errorf("%d: it is %q (%v), want %q", tc.max, got, err, tc.want)
		}
	}
}

// pidsGroup is a group of this machine's whose tasks are bounded. The file is
// the same with cgroup v1.
func pidsGroup(t *testing.T) (*Tree, string) {
	t.Helper()
	const v1 = "/sys/fs/cgroup/pids"
	if _, err := os.Stat(filepath.Join(v1, "cgroup.procs")); err != nil {
		return group(t, Resources{}, "pids")
	}
	dir, err := os.MkdirTemp(v1, "tinylet-test-")
	if err != nil {
		t.Skipf("this needs the right to make a cgroup: %v", err)
	}
	t.Cleanup(func() {
		if err := os.Remove(dir); err != nil {
			t.Error(err)
		}
	})
	return &Tree{root: v1}, filepath.Base(dir)
}

// Crun has a container's processes in a group below its scope, which bounds
// them as well: a limit that only the scope had would not be theirs.
func TestLimitsOfAScope(t *testing.T) {
	const scope = "/a.slice/cri-containerd-1.scope"
	for _, inner := range []bool{false, true} {
		m := newManager(t, all)
		m.listen(privateSocket)
		s := newSlices(t, m)
		must(t, s.Ensure("/a.slice", Resources{CPUWeight: 20}))
		must(t, m.Ensure(scope, Resources{CPUWeight: 30, CPUMax: CPUMax{Quota: 34000, Period: 100000}, MemoryMax: 2 << 20}))
		payload := scope
		if inner {
			payload += "/container"
			must(t, m.Ensure(payload, Resources{CPUMax: CPUMax{Quota: 33300, Period: 100000}, MemoryMax: 1 << 20}))
		}
		if got := m.Payload(scope); got != payload {
			t.Errorf("the processes are in %s, want %s", got, payload)
		}
		known := func(n uint64) Number { return Number{n, true} }
		want := Limits{CPUWeight: known(30), CPUQuota: known(34000), CPUPeriod: 100000, MemoryMax: known(2 << 20)}
		if inner {
			want.CPUQuota, want.MemoryMax = known(33300), known(1<<20)
		}
		got, err := s.Limits(scope)
		if diff := cmp.Diff(want, got); diff != "" || err != nil {
			t.Errorf("inner %v: %v\n%s", inner, err, diff)
		}
		for _, group := range []string{scope, payload} {
			m.put(m.at(group, "memory.high"), "1000000")
			m.put(m.at(group, fileCPUs), "0")
		}
		must(t, s.Set(scope, Resources{MemoryMax: 4 << 20, CPUMax: CPUMax{Quota: Unlimited}, Unified: map[string]string{"memory.high": "max"}}))
		for _, group := range []string{scope, payload} {
			for file, want := range map[string]string{fileMemoryMax: "4194304", fileCPUMax: "max", "memory.high": "max"} {
				if got := m.get(m.at(group, file)); got != want {
					t.Errorf("%s of %s is %q, want %q", file, group, got, want)
				}
			}
		}
		must(t, m.SetCPUs(scope, "1"))
		if got, err := m.CPUs(payload); got != "1" || err != nil {
			t.Errorf("the processes' CPUs are %q, %v", got, err)
		}
	}
}

// Only a scope has a group of that meaning: pods' slices have none, and without
// systemd a container's own group may be called anything.
func TestPayloadIsOfScopes(t *testing.T) {
	f := newFake(t, all)
	for _, path := range []string{"/pods/1", "/a.slice"} {
		must(t, f.Ensure(path+"/container", Resources{}))
		if got := f.Payload(path); got != path {
			t.Errorf("the processes of %s are in %s", path, got)
		}
	}
	if got := f.Payload("/a.slice/none.scope"); got != "/a.slice/none.scope" {
		t.Errorf("one that is not there: %s", got)
	}
}

func TestLowerLimitOfCPU(t *testing.T) {
	of := func(quota, period uint64) Limits {
		return Limits{CPUQuota: Number{quota, true}, CPUPeriod: period}
	}
	for _, row := range []struct {
		l, other Limits
		want     bool
	}{
		{of(33300, 100000), of(34000, 100000), true},
		{of(34000, 100000), of(33300, 100000), false},
		{of(100, 1000), of(11000, 100000), true},
		{of(NoLimit, 100000), of(33300, 100000), false},
		{of(33300, 100000), of(NoLimit, 100000), true},
		{of(33300, 100000), Limits{}, true},
		{Limits{}, of(33300, 100000), false},
		{Limits{}, Limits{}, false},
	} {
		if got := row.l.lessCPU(row.other); got != row.want {
			t.Errorf("%+v less than %+v: %v", row.l, row.other, got)
		}
	}
}

// A service that systemd has started gets what it is given, in its unit and in
// the kernel's file; nothing below it is anybody's but its own.
func TestLimitsOfAService(t *testing.T) {
	const service = "/system.slice/tinylet.service"
	m := newManager(t, all)
	m.listen(privateSocket)
	s := newSlices(t, m)
	must(t, m.Ensure(service+"/container", Resources{}))
	for _, group := range []string{service, service + "/container"} {
		m.put(m.at(group, fileMemoryMin), "0\n")
	}
	m.units["tinylet.service"] = map[string]any{}
	must(t, s.Set(service, Resources{Unified: map[string]string{fileMemoryMin: "4096"}}))
	if got := m.property("tinylet.service", "MemoryMin"); got != uint64(4096) {
		t.Errorf("systemd has MemoryMin %v", got)
	}
	if got, err := m.MemoryMin(service); got != 4096 || err != nil {
		t.Errorf("%d bytes are protected, %v", got, err)
	}
	if got, err := m.MemoryMin(service + "/container"); got != 0 || err != nil {
		t.Errorf("%d bytes are protected below, %v", got, err)
	}
	m.put(m.at(service, fileMemoryMin), "max\n")
	if got, err := m.MemoryMin(service); got != NoLimit || err != nil {
		t.Errorf("all that it uses is protected: %d, %v", got, err)
	}
	if _, err := m.MemoryMin("/none"); !errors.Is(err, ErrNotFound) {
		t.Errorf("of no group: %v", err)
	}
}

func TestWithoutLowMemoryMax(t *testing.T) {
	f := newFake(t, "memory")
	if err := f.Ensure("one", Resources{MemoryMax: 4096}); err != nil {
		t.Fatal(err)
	}
	f.put(f.at("one", fileMemory), "1000\n")
	if err := f.Ensure("cache", Resources{MemoryMax: 4096}); err != nil {
		t.Fatal(err)
	}
	f.put(f.at("cache", fileMemory), "1000\n")
	f.put(f.at("cache", fileMemoryStat), "anon 300\ninactive_file 600\n")
	for _, tc := range []struct {
		path      string
		max, want int64
		tooLow    bool
	}{
		{"one", 1000, 1000, false},
		{"one", 999, 0, true},
		{"one", Unlimited, Unlimited, false},
		{"one", 0, 0, false},
		{"two", 1, 1, false},
		{"cache", 400, 400, false},
		{"cache", 399, 0, true},
	} {
		got, tooLow := f.WithoutLowMemoryMax(tc.path, Resources{MemoryMax: tc.max, PidsMax: 3})
		if got.MemoryMax != tc.want || tooLow != tc.tooLow || got.PidsMax != 3 {
			t.Errorf("%s, %d: %+v, %v", tc.path, tc.max, got, tooLow)
		}
	}
}

// BenchmarkLimits sets the limits of a pod that has them, in a directory.
func BenchmarkLimits(b *testing.B) {
	tree := &Tree{root: b.TempDir()}
	const path = "kubepods/burstable/pod0ab1c2d3-0000-4444-8888-123456789abc"
	for dir := path; dir != "."; dir = filepath.Dir(dir) {
		writeGroup(b, tree, dir, limitFiles)
	}
	writeGroup(b, tree, ".", limitFiles)
	limits := Resources{CPUWeight: 20, CPUMax: CPUMax{Quota: 20000, Period: 100000}, MemoryMax: 64 << 20, PidsMax: 40}
	for name, do := range map[string]func(path string, r Resources) error{"ensure": tree.Ensure, "set": tree.Set} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if err := do(path, limits); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

var limitFiles = map[string]string{
	fileControllers: "cpuset cpu io memory hugetlb pids\n", fileSubtree: "cpuset cpu io memory hugetlb pids\n",
	fileCPUWeight: "100\n", fileCPUMax: "max 100000\n", fileMemoryMax: "max\n", filePidsMax: "max\n",
}

// BenchmarkSlices sets the limits of a pod that has them, with a systemd that does nothing
// but answer.
func BenchmarkSlices(b *testing.B) {
	m := newManager(b, all)
	m.listen(BusSocket)
	s := m.NewSlices(m.root)
	b.Cleanup(s.Close)
	const path = "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod1.slice"
	limits := Resources{CPUWeight: 20, CPUMax: CPUMax{Quota: 20000, Period: 100000}, MemoryMax: 64 << 20, PidsMax: 40}
	if err := s.Ensure(path, limits); err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if err := s.Set(path, limits); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkCreateAndDelete makes and deletes a pod's cgroup with those of two containers
// in the kernel.
func BenchmarkCreateAndDelete(b *testing.B) {
	tree, err := Open(mounted(b))
	if err != nil {
		b.Skip(err)
	}
	pod := fmt.Sprintf("tinylet-bench-%d", os.Getpid())
	b.ReportAllocs()
	for b.Loop() {
		for _, path := range []string{pod + "/a", pod + "/b"} {
			if err := tree.Ensure(path, Resources{}); err != nil {
				b.Skip(err)
			}
		}
		if err := tree.Delete(pod); err != nil {
			b.Fatal(err)
		}
	}
}
