package policy

import (
	"strings"
	"testing"

	"k8s.io/utils/cpuset"
)

func TestTake(t *testing.T) {
	mixed := Topology{CPUs: list(t, "0-5"), Core: map[int]int{0: 0, 1: 0, 2: 2, 3: 2, 4: 4, 5: 5}}
	for _, row := range []struct {
		name string
		top  Topology
		free string
		n    int
		want string
	}{
		{"lowest numbers", board(t, "0-7"), "1,3-7", 3, "1,3-4"},
		{"nothing", board(t, "0-7"), "1-7", 0, ""},
		{"whole cores", paired(4), "0-7", 2, "0,4"},
		{"whole cores before a lower thread", paired(4), "0-3,5-7", 2, "1,5"},
		{"a thread of a core that is in use", paired(4), "0-3,5-7", 1, "0"},
		{"a core and a thread", paired(4), "1-3,5-7", 3, "1-2,5"},
		{"the thread comes from the fullest core", paired(4), "1-3,4-7", 3, "1,4-5"},
		{"no whole core", paired(4), "0-3", 2, "0-1"},
		{"all", paired(4), "0-7", 8, "0-7"},
		{"cores of one thread first", mixed, "0-5", 2, "4-5"},
		{"small cores, then a large one", mixed, "0-5", 4, "0-1,4-5"},
	} {
		cores, err := row.top.cores()
		if err != nil {
			t.Fatal(err)
		}
		if got := pickCPUs(cores, list(t, row.free), row.n); got.String() != row.want {
			t.Errorf("%s: %s, want %s", row.name, got, row.want)
		}
	}
}

func TestTopologyThatContradictsItself(t *testing.T) {
	for _, row := range []struct {
		top  Topology
		says string
	}{
		{Topology{}, "not known"},
		{Topology{CPUs: cpuset.New(0, 1), Core: map[int]int{0: 0}}, "the core of CPU 1"},
		{Topology{CPUs: cpuset.New(0), Core: map[int]int{0: 0, 7: 3}}, "CPU 7 has a core"},
		{Topology{CPUs: cpuset.New(0), Core: map[int]int{0: 0, -7: 3}}, "CPU -7 has a core"},
	} {
		if _, err := New(row.top, cpuset.New(0), Options{}); err == nil || !strings.Contains(err.Error(), row.says) {
			t.Errorf("%v: %v, want an error with %q", row.top.Core, err, row.says)
		}
	}
}
