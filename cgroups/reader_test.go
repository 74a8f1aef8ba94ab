package cgroups

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/containerd/cgroups/v3/cgroup2"
	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

// groupFiles are the files of a container's group on Linux 6.12 with all
// controllers; the numbers are made up.
func groupFiles(t testing.TB) map[string]string {
	t.Helper()
	stat, err := os.ReadFile("testdata/memory.stat")
	if err != nil {
		t.Fatal(err)
	}
	return map[string]string{
		fileControllers:       "cpuset cpu io memory hugetlb pids\n",
		"memory.current":      "3182592\n",
		"memory.max":          "67108864\n",
		"memory.stat":         string(stat),
		"memory.swap.current": "4096\n",
		"memory.swap.max":     "max\n",
		"memory.events":       "low 0\nhigh 1\nmax 20\noom 3\noom_kill 2\noom_group_kill 1\n",
		"cpu.stat": "usage_usec 1520443\nuser_usec 1000400\nsystem_usec 520043\nnice_usec 0\n" +
			"core_sched.force_idle_usec 0\nnr_periods 200\nnr_throttled 12\nthrottled_usec 340000\nnr_bursts 0\nburst_usec 0\n",
		"pids.current": "7\n",
		"io.stat": "179:0 rbytes=1048576 wbytes=8192 rios=30 wios=2 dbytes=0 dios=0\n" +
			"254:0 rbytes=4096 wbytes=0 rios=1 wios=0 dbytes=0 dios=0\n",
		"cpu.pressure":    "some avg10=1.50 avg60=0.75 avg300=0.07 total=123456\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=78\n",
		"memory.pressure": "some avg10=0.00 avg60=0.00 avg300=0.00 total=0\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=0\n",
		"io.pressure":     "some avg10=100.00 avg60=99.99 avg300=12.34 total=18446744073709551615\nfull avg10=50.00 avg60=0.01 avg300=0.00 total=9\n",
	}
}

func groupStats() Stats {
	k := func(n uint64) Number { return Number{n, true} }
	return Stats{
		CPU: CPUStats{Usage: k(1520443), User: k(1000400), System: k(520043), Periods: k(200), ThrottledPeriods: k(12), Throttled: k(340000)},
		Memory: MemoryStats{
			Current: k(3182592), Max: k(67108864), SwapCurrent: k(4096), SwapMax: k(NoLimit),
			Anon: k(401408), File: k(2555904), Kernel: k(225280), SlabReclaimable: k(60264),
			ActiveFile: k(147456), InactiveFile: k(2408448), Faults: k(1184), MajorFaults: k(12),
		},
		Events: MemoryEvents{OOM: k(3), OOMKill: k(2), OOMGroupKill: k(1)},
		Pids:   k(7),
		IO:     IOStats{ReadBytes: k(1052672), WrittenBytes: k(8192), Reads: k(31), Writes: k(2)},
		CPUPressure: Pressure{
			Some: Stall{Known: true, Avg10: 1.5, Avg60: 0.75, Avg300: 0.07, Total: 123456},
			Full: Stall{Known: true, Total: 78},
		},
		MemoryPressure: Pressure{Some: Stall{Known: true}, Full: Stall{Known: true}},
		IOPressure: Pressure{
			Some: Stall{Known: true, Avg10: 100, Avg60: 99.99, Avg300: 12.34, Total: 1<<64 - 1},
			Full: Stall{Known: true, Avg10: 50, Avg60: 0.01, Total: 9},
		},
	}
}

// writeGroup makes a group of plain files under a tree that is a folder.
func writeGroup(t testing.TB, tree *Tree, path string, files map[string]string) string {
	t.Helper()
	dir := filepath.Join(tree.root, path)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

const allParts = PartCPU | PartMemory | PartMemoryMax | PartSwap | PartEvents | PartPids | PartIO | PartPressure

func TestReader(t *testing.T) {
	tree := &Tree{root: t.TempDir()}
	writeGroup(t, tree, "kubepods/pod1/c1", groupFiles(t))
	r := tree.NewReader()
	var got Stats
	for _, path := range []string{"kubepods/pod1/c1", "/kubepods/pod1/c1"} {
		if err := r.Read(path, allParts, &got); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(groupStats(), got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", path, diff)
		}
	}
	if err := r.Read("kubepods/pod1/c1", PartPids|PartSwap, &got); err != nil {
		t.Fatal(err)
	}
	want := Stats{Pids: Number{7, true}}
	want.Memory.SwapCurrent, want.Memory.SwapMax = Number{4096, true}, Number{NoLimit, true}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("two parts alone, after all (-want +got):\n%s", diff)
	}
}

// What is missing because a controller is off, or at the root, is not known;
// it is no fault.
func TestReaderWithoutControllers(t *testing.T) {
	tree := &Tree{root: t.TempDir()}
	writeGroup(t, tree, ".", map[string]string{
		fileControllers: "\n",
		"cpu.stat":      "usage_usec 10\nuser_usec 7\nsystem_usec 3\n",
		"memory.stat":   "anon 100\nfile 50\ninactive_file 20\n",
		"cpu.pressure":  "some avg10=0.00 avg60=0.00 avg300=0.00 total=5\n", // before Linux 5.13
	})
	var got Stats
	if err := tree.NewReader().Read("/", allParts, &got); err != nil {
		t.Fatal(err)
	}
	var want Stats
	want.CPU = CPUStats{Usage: Number{10, true}, User: Number{7, true}, System: Number{3, true}}
	want.Memory = MemoryStats{Anon: Number{100, true}, File: Number{50, true}, InactiveFile: Number{20, true}}
	want.CPUPressure.Some = Stall{Known: true, Total: 5}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if got := got.Memory.WorkingSet(); got != (Number{130, true}) {
		t.Errorf("the root's working set is %+v", got)
	}
}

func TestReaderOfNoGroup(t *testing.T) {
	tree := &Tree{root: t.TempDir()}
	files := groupFiles(t)
	// A removed group looks so through a folder that is still open: no file
	// of it can be opened, not even the one that all groups have.
	delete(files, fileControllers)
	delete(files, "io.pressure")
	writeGroup(t, tree, "removed", files)
	r := tree.NewReader()
	var f Stats
	for _, path := range []string{"nowhere", "removed"} {
		err := r.Read(path, allParts, &f)
		if !errors.Is(err, ErrNotFound) || !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), tree.root+"/"+path) {
			t.Errorf("%s: %v", path, err)
		}
	}
	for _, path := range []string{"..", "a/../..", "a\x00b"} {
		if err := r.Read(path, allParts, &f); err == nil || errors.Is(err, ErrNotFound) {
			t.Errorf("Read(%q): %v", path, err)
		}
	}
}

func TestReaderRefusesNonsense(t *testing.T) {
	bad := map[string]string{
		"memory.current":      "lots\n",
		"memory.max":          "-1\n",
		"memory.stat":         "anon 1\nfile\n",
		"memory.swap.current": "",
		"memory.swap.max":     "maximum\n",
		"memory.events":       "oom_kill 18446744073709551616\n",
		"cpu.stat":            "usage_usec 1.5\n",
		"pids.current":        "max\n",
		"io.stat":             "8:0 rbytes=18446744073709551615\n8:1 rbytes=1\n",
		"cpu.pressure":        "some avg10=x\n",
		"memory.pressure":     "full total=\n",
		"io.pressure":         "some avg10=1234567890.1234567890\n",
	}
	for _, s := range sources {
		name := strings.TrimSuffix(s.name, "\x00")
		t.Run(name, func(t *testing.T) {
			tree := &Tree{root: t.TempDir()}
			files := groupFiles(t)
			files[name] = bad[name]
			writeGroup(t, tree, "a", files)
			var f Stats
			err := tree.NewReader().Read("a", allParts, &f)
			if err == nil || errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), "/a: "+name+": ") {
				t.Errorf("error %v", err)
			}
		})
	}
}

func TestReaderOfManyDisks(t *testing.T) {
	tree := &Tree{root: t.TempDir()}
	var stat strings.Builder
	for i := range 1000 {
		fmt.Fprintf(&stat, "8:%d rbytes=1 wbytes=2 rios=3 wios=4 dbytes=0 dios=0\n", i)
	}
	dir := writeGroup(t, tree, "a", map[string]string{fileControllers: "io\n", "io.stat": stat.String()})
	r := tree.NewReader()
	var f Stats
	if err := r.Read("a", PartIO, &f); err != nil {
		t.Fatal(err)
	}
	if want := (IOStats{Number{1000, true}, Number{2000, true}, Number{3000, true}, Number{4000, true}}); f.IO != want {
		t.Errorf("got %+v", f.IO)
	}
	if err := os.WriteFile(filepath.Join(dir, "io.stat"), make([]byte, maxFile+1), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := r.Read("a", PartIO, &f); err == nil || !strings.Contains(err.Error(), "longer than") {
		t.Errorf("a file without an end: %v", err)
	}
}

func TestReaderAllocatesNothing(t *testing.T) {
	tree := &Tree{root: t.TempDir()}
	files := groupFiles(t)
	delete(files, "memory.swap.max")
	writeGroup(t, tree, "kubepods/pod1/c1", files)
	r := tree.NewReader()
	f := new(Stats)
	if n := testing.AllocsPerRun(10, func() {
		if err := r.Read("/kubepods/pod1/c1", allParts, f); err != nil {
			t.Fatal(err)
		}
	}); n > 0 {
		t.Errorf("%v allocations for each group", n)
	}
}

// TestReaderOfTheKernel reads what this machine's kernel writes.
func TestReaderOfTheKernel(t *testing.T) {
	root := mounted(t)
	tree, err := Open(root)
	if err != nil {
		t.Fatal(err)
	}
	r := tree.NewReader()
	var f Stats
	if err := r.Read("/", allParts, &f); err != nil {
		t.Fatal(err)
	}
	if !f.CPU.Usage.Known || f.CPU.Usage.Value == 0 {
		t.Errorf("CPU of the root: %+v", f.CPU)
	}

	dir, err := os.MkdirTemp(root, "tinylet-test-")
	if err != nil {
		t.Skipf("the rest makes a cgroup: %v", err)
	}
	defer func() { _ = unix.Rmdir(dir) }()
	if err := r.Read(filepath.Base(dir), allParts, &f); err != nil {
		t.Error(err)
	}
	fd, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	if err := unix.Rmdir(dir); err != nil {
		t.Fatal(err)
	}
	// What the test of a removed group in a folder takes for granted.
	for _, name := range []string{fileControllers, "cpu.stat"} {
		if _, err := unix.Openat(fd, name, unix.O_RDONLY|unix.O_CLOEXEC, 0); !errors.Is(err, unix.ENOENT) && !errors.Is(err, unix.ENODEV) {
			t.Errorf("open %s of a removed group: %v", name, err)
		}
	}
	if err := r.Read(filepath.Base(dir), allParts, &f); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a removed group: %v", err)
	}
}

// mounted is where this machine has cgroup v2, alone or beside v1.
func mounted(t testing.TB) string {
	t.Helper()
	file, err := os.Open("/proc/self/mounts")
	if err != nil {
		t.Skip(err)
	}
	defer file.Close()
	for lines := bufio.NewScanner(file); lines.Scan(); {
		if fields := strings.Fields(lines.Text()); len(fields) > 2 && fields[2] == "cgroup2" {
			return fields[1]
		}
	}
	t.Skip("cgroup v2 is not mounted here")
	return ""
}

// fullNode makes the cgroups of 30 pods with two containers each, and returns their paths.
func fullNode(b *testing.B, tree *Tree) []string {
	b.Helper()
	files := groupFiles(b)
	var paths []string
	for pod := range 30 {
		path := fmt.Sprintf("/kubepods/burstable/pod0ab1c2d3-%04d-4444-8888-123456789abc", pod)
		for _, path := range []string{path, path + "/" + strings.Repeat("a", 64), path + "/" + strings.Repeat("b", 64)} {
			writeGroup(b, tree, path, files)
			paths = append(paths, path)
		}
	}
	if got := slices.Sorted(maps.Keys(files)); len(got) != len(sources)+1 {
		b.Errorf("the groups have only %v", got)
	}
	return paths
}

// BenchmarkReader reads the stats of a full node.
func BenchmarkReader(b *testing.B) {
	tree := &Tree{root: b.TempDir()}
	paths := fullNode(b, tree)
	for _, parts := range []struct {
		name string
		of   Parts
	}{{"all", allParts}, {"cpu+memory", PartCPU | PartMemory}} {
		b.Run(parts.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				r := tree.NewReader()
				stats := make([]Stats, len(paths))
				for i, path := range paths {
					if err := r.Read(path, parts.of, &stats[i]); err != nil {
						b.Fatal(err)
					}
				}
			}
		})
	}
}

// BenchmarkStatFiltered reads the same with the library, which it justifies not to use.
func BenchmarkStatFiltered(b *testing.B) {
	tree := &Tree{root: b.TempDir()}
	paths := fullNode(b, tree)
	for _, parts := range []struct {
		name string
		of   cgroup2.StatMask
	}{
		{"all", cgroup2.StatPids | cgroup2.StatCPU | cgroup2.StatMemory | cgroup2.StatMemoryEvents | cgroup2.StatIO},
		{"cpu+memory", cgroup2.StatCPU | cgroup2.StatMemory},
		{"memory", cgroup2.StatMemory},
	} {
		b.Run(parts.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				for _, path := range paths {
					m, err := cgroup2.Load(path, cgroup2.WithMountpoint(tree.root))
					if err != nil {
						b.Fatal(err)
					}
					if _, err := m.StatFiltered(parts.of); err != nil {
						b.Fatal(err)
					}
				}
			}
		})
	}
}
