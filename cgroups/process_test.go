package cgroups

import (
	"errors"
	"testing"
)

func TestProcess(t *testing.T) {
	f := newFake(t, "memory")
	for _, tc := range []struct {
		name, procs string
		want        int
		fails       bool
	}{
		{name: "none", procs: ""},
		{name: "one", procs: "42\n", want: 42},
		{name: "many", procs: "4194304\n4194303\n4194302\n4194301\n4194300\n", want: 4194304},
		{name: "elsewhere", procs: "0\n"},
		{name: "torn", procs: "42", fails: true},
		{name: "other", procs: "x\n", fails: true},
	} {
		if err := f.Ensure(tc.name, Resources{}); err != nil {
			t.Fatal(err)
		}
		f.put(f.at(tc.name, fileProcs), tc.procs)
		if got, err := f.Process("/" + tc.name); got != tc.want || (err != nil) != tc.fails {
			t.Errorf("%s: %d, %v", tc.name, got, err)
		}
	}
	if _, err := f.Process("missing"); !errors.Is(err, ErrNotFound) {
		t.Errorf("a missing group: %v", err)
	}
	if _, err := f.Process("../outside"); err == nil {
		t.Error("a path that leaves the root")
	}
}
