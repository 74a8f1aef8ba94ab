package main

import (
	"runtime/debug"
	"testing"
)

func TestSetGCPercent(t *testing.T) {
	before := debug.SetGCPercent(100)
	t.Cleanup(func() { debug.SetGCPercent(before) })
	for _, tc := range []struct {
		env  string
		want int
	}{{"", gcPercent}, {"100", 100}, {"off", 100}} {
		t.Setenv("GOGC", tc.env)
		debug.SetGCPercent(100) // as the Go runtime reads GOGC
		setGCPercent()
		if got := debug.SetGCPercent(100); got != tc.want {
			t.Errorf("GOGC=%q: %d percent, want %d", tc.env, got, tc.want)
		}
	}
}
