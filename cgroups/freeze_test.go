package cgroups

import (
	"errors"
	"testing"
)

func TestFreeze(t *testing.T) {
	tree, path := group(t, Resources{})
	told := make(chan State, 16)
	w, err := polling(t, tree).WatchState(path, func(s State, _ error) { told <- s })
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	next(t, told)
	play(t, tree, path, "wait")
	next(t, told)
	for _, frozen := range []bool{true, false} {
		if err := tree.Freeze(path, frozen); err != nil {
			t.Fatal(err)
		}
		if got := next(t, told); got != (State{Populated: true, Frozen: frozen}) {
			t.Errorf("frozen %v: %+v", frozen, got)
		}
	}
	if err := tree.Freeze(path, true); err != nil {
		t.Error(err)
	}
	if err := tree.Kill(path); err != nil {
		t.Error(err)
	}
	for got := (State{Populated: true}); got.Populated; {
		got = next(t, told)
	}
}

func TestFreezeNothing(t *testing.T) {
	tree, _ := group(t, Resources{})
	if err := tree.Freeze("tinylet-test-nowhere", true); !errors.Is(err, ErrNotFound) {
		t.Errorf("no group: %v", err)
	}
	for _, path := range []string{"/", "../.."} {
		if err := tree.Freeze(path, true); err == nil {
			t.Errorf("%q is frozen", path)
		}
	}
}
