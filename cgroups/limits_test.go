package cgroups

import (
	"errors"
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
