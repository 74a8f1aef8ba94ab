package cgroups

import "testing"

func TestSpare(t *testing.T) {
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
		got, tooLow := f.Spare(tc.path, Resources{MemoryMax: tc.max, PidsMax: 3})
		if got.MemoryMax != tc.want || tooLow != tc.tooLow || got.PidsMax != 3 {
			t.Errorf("%s, %d: %+v, %v", tc.path, tc.max, got, tooLow)
		}
	}
}
