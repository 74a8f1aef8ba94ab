package cgroups

import "testing"

func TestPopulated(t *testing.T) {
	f := newFake(t, "memory")
	for _, tc := range []struct {
		name, events string
		want, fails  bool
	}{
		{name: "none", events: "populated 0\nfrozen 0\n"},
		{name: "some", events: "populated 1\nfrozen 0\n", want: true},
		{name: "later", events: "frozen 1\npopulated 1\n", want: true},
		{name: "empty", events: "", fails: true},
		{name: "other", events: "frozen 0\n", fails: true},
	} {
		if err := f.Ensure(tc.name, Resources{}); err != nil {
			t.Fatal(err)
		}
		f.put(f.at(tc.name, fileEvents), tc.events)
		if got, err := f.Populated("/" + tc.name); got != tc.want || (err != nil) != tc.fails {
			t.Errorf("%s: %v, %v", tc.name, got, err)
		}
	}
	if got, err := f.Populated("missing"); got || err != nil {
		t.Errorf("a missing group: %v, %v", got, err)
	}
	if _, err := f.Populated("../outside"); err == nil {
		t.Error("a path that leaves the root")
	}
}
