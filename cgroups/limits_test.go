package cgroups

import (
	"errors"
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
	known := func(n uint64) Figure { return Figure{n, true} }
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
	if err := f.Set("pods/one", Resources{PidsMax: 1}); !errors.Is(err, ErrController) {
		t.Errorf("a controller that is off: %v", err)
	}
	f.put(filepath.Join(f.root, "pods/one", fileCPUMax), "much\n")
	if got, err := f.Limits("pods/one"); err == nil {
		t.Errorf("nonsense gives %+v", got)
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
