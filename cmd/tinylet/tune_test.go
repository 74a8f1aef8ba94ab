package main

import (
	"runtime"
	"testing"
)

func TestTakeTurns(t *testing.T) {
	before := runtime.GOMAXPROCS(3)
	t.Cleanup(func() { runtime.GOMAXPROCS(before) })
	t.Setenv("GOMAXPROCS", "3")
	takeTurns()
	if n := runtime.GOMAXPROCS(0); n != 3 {
		t.Errorf("GOMAXPROCS of the environment gave %d processors", n)
	}
	t.Setenv("GOMAXPROCS", "")
	takeTurns()
	if n := runtime.GOMAXPROCS(0); n != 1 {
		t.Errorf("the agent has %d processors", n)
	}
}
