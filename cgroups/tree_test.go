package cgroups

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

// fake is a cgroup file system in a directory: a cgroup is created with the files of the
// controllers that its parent delegates, as by the kernel.
type fake struct {
	*Tree
	t testing.TB
}

func newFake(t testing.TB, controllers string) *fake {
	t.Helper()
	f := &fake{t: t, Tree: &Tree{root: t.TempDir()}}
	f.create = f.makeGroup
	f.populate(f.root, controllers)
	return f
}

func (f *fake) populate(dir, controllers string) {
	files := map[string]string{
		fileControllers: controllers + "\n",
		fileSubtree:     "\n",
		"cgroup.procs":  "",
		fileKill:        "",
		fileEvents:      "populated 0\nfrozen 0\n",
	}
	for _, c := range strings.Fields(controllers) {
		switch c {
		case "cpu":
			files[fileCPUWeight], files[fileCPUMax] = "100\n", "max 100000\n"
		case "memory":
			files[fileMemoryMax], files[fileMemory] = "max\n", "0\n"
			files[fileMemoryStat] = "anon 0\ninactive_file 0\n"
		case "pids":
			files[filePidsMax] = "max\n"
		}
	}
	for name, content := range files {
		f.put(filepath.Join(dir, name), content)
	}
}

func (f *fake) makeGroup(dir string) error {
	return f.makeGroupWith(dir, strings.ReplaceAll(f.get(filepath.Join(filepath.Dir(dir), fileSubtree)), "+", ""))
}

func (f *fake) makeGroupWith(dir, controllers string) error {
	if err := os.Mkdir(dir, 0o755); err != nil {
		return err
	}
	f.populate(dir, controllers)
	return nil
}

// occupy puts a process into a cgroup, or removes it with "".
func (f *fake) occupy(path, process string) {
	f.t.Helper()
	f.put(f.at(path, fileProcs), process)
	events := "populated 1\nfrozen 0\n"
	if process == "" {
		events = "populated 0\nfrozen 0\n"
	}
	for dir := f.at(path); dir != f.root; dir = filepath.Dir(dir) {
		f.put(filepath.Join(dir, fileEvents), events)
	}
}

func (f *fake) put(file, content string) {
	f.t.Helper()
	if err := os.WriteFile(file, []byte(content), 0o644); err != nil {
		f.t.Fatal(err)
	}
}

func (f *fake) get(file string) string {
	f.t.Helper()
	raw, err := os.ReadFile(file)
	if err != nil {
		f.t.Fatal(err)
	}
	text := strings.TrimSpace(string(raw))
	if filepath.Base(file) == fileMemoryMax && text == fmt.Sprint(int64(math.MaxInt64)) {
		return "max" // as the kernel shows it
	}
	return text
}

func (f *fake) at(parts ...string) string {
	return filepath.Join(append([]string{f.root}, parts...)...)
}

func TestOpen(t *testing.T) {
	f := newFake(t, "cpuset cpu io memory pids")
	tree, err := Open(f.root)
	if err != nil {
		t.Fatal(err)
	}
	missing, err := tree.Missing("memory", "hugetlb", "cpu", "rdma")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"hugetlb", "rdma"}, missing); diff != "" {
		t.Error(diff)
	}
	if _, err := Open(t.TempDir()); !errors.Is(err, ErrNotMounted) {
		t.Errorf("open an empty folder: %v, want ErrNotMounted", err)
	}
}

func TestEnsure(t *testing.T) {
	f := newFake(t, "cpuset cpu io memory pids misc")
	r := Resources{
		CPUWeight: 7,
		CPUMax:    CPUMax{Quota: 20000, Period: 100000},
		MemoryMax: 64 << 20,
		PidsMax:   Unlimited,
	}
	for range 2 { // idempotent
		if err := f.Ensure("/kubepods/burstable/pod1", r); err != nil {
			t.Fatal(err)
		}
	}
	got := map[string]string{}
	for _, file := range []string{fileCPUWeight, fileCPUMax, fileMemoryMax, filePidsMax} {
		got[file] = f.get(f.at("kubepods/burstable/pod1", file))
	}
	want := map[string]string{fileCPUWeight: "7", fileCPUMax: "20000 100000", fileMemoryMax: "67108864", filePidsMax: "max"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	for _, dir := range []string{".", "kubepods", "kubepods/burstable"} {
		if got := f.get(f.at(dir, fileSubtree)); !strings.Contains(got, "+memory") || strings.Contains(got, "misc") {
			t.Errorf("%s delegates %q", dir, got)
		}
	}
	if got := f.get(f.at("kubepods/burstable/pod1", fileSubtree)); got != "" {
		t.Errorf("the leaf itself delegates %q; a runtime decides that", got)
	}
	if got := f.get(f.at("kubepods", fileMemoryMax)); got != "max" {
		t.Errorf("the parent got the limit %q", got)
	}
}

func TestEnsureLeavesZeroFields(t *testing.T) {
	f := newFake(t, "cpu memory pids")
	if err := f.Ensure("a", Resources{MemoryMax: 1 << 20}); err != nil {
		t.Fatal(err)
	}
	if err := f.Ensure("a", Resources{}); err != nil {
		t.Fatal(err)
	}
	if got := f.get(f.at("a", fileMemoryMax)); got != "1048576" {
		t.Errorf("memory.max is %q after an Ensure without limits", got)
	}
}

func TestEnsureMissingController(t *testing.T) {
	f := newFake(t, "cpu pids")
	err := f.Ensure("kubepods/pod1", Resources{CPUWeight: 1, MemoryMax: 1 << 20})
	if !errors.Is(err, ErrController) || !strings.Contains(err.Error(), "memory is not in "+f.at(fileControllers)) {
		t.Errorf("got %v, want ErrController that names memory and the root", err)
	}
	if f.Exists("kubepods") {
		t.Error("a group was made though its limits cannot be kept")
	}
	if err := f.Ensure("kubepods/pod1", Resources{CPUWeight: 1}); err != nil {
		t.Errorf("memory is not needed: %v", err)
	}
}

func TestEnsureMissingBelow(t *testing.T) {
	f := newFake(t, "cpu memory")
	if err := f.Ensure("a/b", Resources{}); err != nil {
		t.Fatal(err)
	}
	f.put(f.at("a", fileControllers), "cpu\n")
	err := f.Ensure("a/b", Resources{MemoryMax: 1})
	if !errors.Is(err, ErrController) || !strings.Contains(err.Error(), f.at("a", fileControllers)) {
		t.Errorf("got %v, want the place a", err)
	}
}

func TestPathsStayInside(t *testing.T) {
	f := newFake(t, "cpu")
	for _, path := range []string{"..", "/../x", "a/../../b", "a\x00b"} {
		if err := f.Ensure(path, Resources{}); err == nil {
			t.Errorf("Ensure(%q) passed", path)
		}
		if err := f.Delete(path); err == nil {
			t.Errorf("Delete(%q) passed", path)
		}
		if err := f.Kill(path); err == nil {
			t.Errorf("Kill(%q) passed", path)
		}
		if _, err := f.MemoryCurrent(path); err == nil {
			t.Errorf("MemoryCurrent(%q) passed", path)
		}
	}
	for _, root := range []string{"", "/", "."} {
		if f.Delete(root) == nil || f.Kill(root) == nil {
			t.Errorf("%q: the root may be deleted or killed", root)
		}
	}
}

func TestDelete(t *testing.T) {
	f := newFake(t, "cpu memory")
	for _, path := range []string{"k/pod1/c1", "k/pod1/c2/deep", "k/pod2"} {
		if err := f.Ensure(path, Resources{}); err != nil {
			t.Fatal(err)
		}
	}
	f.occupy("k/pod1/c2/deep", "42\n")
	if err := f.Delete("k/pod1"); !errors.Is(err, ErrBusy) || !strings.Contains(err.Error(), "c2/deep") {
		t.Errorf("got %v, want ErrBusy that names the group with the process", err)
	}
	if f.Exists("k/pod1/c1") {
		t.Error("the free sibling is still there")
	}
	f.occupy("k/pod1/c2/deep", "")
	for range 2 {
		if err := f.Delete("k/pod1"); err != nil {
			t.Errorf("got %v", err)
		}
	}
	names, err := f.List("k")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"pod2"}, names); diff != "" {
		t.Error(diff)
	}
	if _, err := f.List("nowhere"); !errors.Is(err, ErrNotFound) {
		t.Errorf("list a missing group: %v", err)
	}
}

// The container runtime takes its groups away at the same time.
func TestDeleteWhileWhatIsBelowGoes(t *testing.T) {
	tree, path := group(t, Resources{})
	pod := path + "/pod1"
	for range 20 {
		var others sync.WaitGroup
		for _, name := range []string{"a", "b", "c", "d"} {
			must(t, tree.Ensure(pod+"/"+name, Resources{}))
			others.Go(func() { _ = unix.Rmdir(filepath.Join(tree.root, pod, name)) })
		}
		if err := tree.Delete(pod); err != nil || tree.Exists(pod) {
			t.Errorf("got %v", err)
		}
		others.Wait()
	}
}

func TestKill(t *testing.T) {
	f := newFake(t, "cpu")
	if err := f.Ensure("a", Resources{}); err != nil {
		t.Fatal(err)
	}
	if err := f.Kill("a"); err != nil {
		t.Fatal(err)
	}
	if got := f.get(f.at("a", fileKill)); got != "1" {
		t.Errorf("cgroup.kill is %q", got)
	}
	if err := f.Kill("gone"); err != nil {
		t.Errorf("kill a missing group: %v", err)
	}
	if err := os.Remove(f.at("a", fileKill)); err != nil {
		t.Fatal(err)
	}
	if err := f.Kill("a"); err == nil || !strings.Contains(err.Error(), "5.14") {
		t.Errorf("got %v, want the kernel that is needed", err)
	}
}

// Files beside the usual ones are written as they are, and hand their
// controller down.
func TestEnsureUnified(t *testing.T) {
	f := newFake(t, "cpu io memory pids hugetlb")
	for _, dir := range []string{"pods", "pods/one"} {
		if err := f.Ensure(dir, Resources{}); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"memory.low", "hugetlb.2MB.max"} {
		f.put(f.at("pods", "one", name), "0\n")
	}
	if err := f.Ensure("pods/one", Resources{Unified: map[string]string{"memory.low": "4096", "hugetlb.2MB.max": "0"}}); err != nil {
		t.Fatal(err)
	}
	if got := f.get(f.at("pods", "one", "memory.low")); got != "4096" {
		t.Errorf("memory.low is %q", got)
	}
	for file, want := range map[string]error{
		"memory.swap.max": fs.ErrNotExist, // a kernel without it
		"rdma.max":        ErrController,
		"cgroup.procs":    nil,
		"../memory.max":   nil,
		"memory":          nil,
	} {
		err := f.Ensure("pods/one", Resources{Unified: map[string]string{file: "1"}})
		if err == nil || want != nil && !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", file, err, want)
		}
	}
}
