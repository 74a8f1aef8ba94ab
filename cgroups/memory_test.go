package cgroups

import (
	"errors"
	"os"
	"strconv"
	"strings"
	"testing"
)

func TestMemory(t *testing.T) {
	f := newFake(t, "memory")
	if err := f.Ensure("a/b", Resources{}); err != nil {
		t.Fatal(err)
	}
	// The keys and their order are those of cgroup-v2.rst; the values are made up.
	stat, err := os.ReadFile("testdata/memory.stat")
	if err != nil {
		t.Fatal(err)
	}
	f.put(f.at("a/b", fileMemoryStat), string(stat))
	f.put(f.at("a/b", fileMemory), "3182592\n")

	got, err := f.WorkingSet("/a/b")
	if err != nil {
		t.Fatal(err)
	}
	if want := uint64(3182592 - 2408448); got != want {
		t.Errorf("got %d, want %d", got, want)
	}
	if n := testing.AllocsPerRun(100, func() {
		if _, err := f.WorkingSet("/a/b"); err != nil {
			t.Fatal(err)
		}
	}); n > 8 {
		t.Errorf("%v allocations for each read", n)
	}
}

func TestLocalOOM(t *testing.T) {
	f := newFake(t, "memory")
	if err := f.Ensure("a", Resources{}); err != nil {
		t.Fatal(err)
	}
	if _, err := f.LocalOOM("a"); !errors.Is(err, ErrController) {
		t.Errorf("without the file: %v", err)
	}
	if _, err := f.LocalOOM("b"); !errors.Is(err, ErrNotFound) {
		t.Errorf("without the group: %v", err)
	}
	f.put(f.at("a", fileLocalEvents), "low 0\nhigh 0\nmax 9\noom 3\noom_kill 2\noom_group_kill 1\n")
	if n, err := f.LocalOOM("a"); n != 3 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
	f.put(f.at("a", fileLocalEvents), "max 9\n")
	if _, err := f.LocalOOM("a"); err == nil {
		t.Error("no count, and no error")
	}
}

func TestMemoryEdges(t *testing.T) {
	f := newFake(t, "memory")
	if err := f.Ensure("a", Resources{}); err != nil {
		t.Fatal(err)
	}
	if _, err := f.MemoryCurrent("b"); !errors.Is(err, ErrNotFound) {
		t.Errorf("a missing group: %v", err)
	}
	f.put(f.at("a", fileMemory), "10\n")
	f.put(f.at("a", fileMemoryStat), "inactive_file 11\n")
	if got, err := f.WorkingSet("a"); err != nil || got != 0 {
		t.Errorf("got %d, %v; want a working set that stops at 0", got, err)
	}
	f.put(f.at("a", fileMemory), "max\n")
	if _, err := f.MemoryCurrent("a"); err == nil || !strings.Contains(err.Error(), "not a number") {
		t.Errorf("got %v", err)
	}
	if err := os.Remove(f.at("a", fileMemory)); err != nil {
		t.Fatal(err)
	}
	if _, err := f.MemoryCurrent("a"); !errors.Is(err, ErrController) {
		t.Errorf("a group without the controller: %v", err)
	}
}

func FuzzLookup(f *testing.F) {
	f.Add("anon 1\ninactive_file 2\n")
	f.Add("inactive_file 18446744073709551615")
	f.Add("inactive_file 18446744073709551616")
	f.Add("inactive_files 3\ninactive_file \n")
	f.Fuzz(func(t *testing.T, stat string) {
		got, ok := lookup([]byte(stat), "inactive_file")
		var want uint64
		wantOK := false
		for line := range strings.SplitSeq(stat, "\n") {
			if v, found := strings.CutPrefix(line, "inactive_file "); found {
				n, err := strconv.ParseUint(v, 10, 64)
				if want, wantOK = n, err == nil; err != nil {
					want = 0
				}
				break
			}
		}
		if got != want || ok != wantOK {
			t.Errorf("%q: got %d %v, want %d %v", stat, got, ok, want, wantOK)
		}
	})
}
