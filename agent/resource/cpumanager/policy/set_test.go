package policy

import (
	"slices"
	"testing"
)

func TestSet(t *testing.T) {
	a, b := setOf(0, 1, 63, 64, 1023), setOf(1, 2, 64)
	for _, row := range []struct {
		name string
		got  Set
		want Set
	}{
		{"union", a.Union(b), setOf(0, 1, 2, 63, 64, 1023)},
		{"intersect", a.Intersect(b), setOf(1, 64)},
		{"difference", a.Difference(b), setOf(0, 63, 1023)},
		{"the operands stay", a, setOf(0, 1, 63, 64, 1023)},
	} {
		if row.got != row.want {
			t.Errorf("%s: %s, want %s", row.name, row.got, row.want)
		}
	}
	if got := slices.Collect(a.All()); !slices.Equal(got, []int{0, 1, 63, 64, 1023}) || a.Len() != len(got) {
		t.Errorf("all: %v, length %d", got, a.Len())
	}
	for _, cpu := range []int{-1, 2, 1022, 1024, 1 << 30} {
		if a.Contains(cpu) {
			t.Errorf("contains %d", cpu)
		}
	}
	if !a.Contains(1023) || a.IsEmpty() || !(Set{}).IsEmpty() || !setOf(1).IsSubsetOf(a) || b.IsSubsetOf(a) {
		t.Error("membership is wrong")
	}
	for cpu := range a.All() {
		if cpu == 1 {
			break
		}
	}
}
