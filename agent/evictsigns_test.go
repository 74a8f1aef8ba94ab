package agent

import (
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tinylet/tinylet/agent/config/evictionapi"
	"github.com/tinylet/tinylet/cgroups"
)

// A group that took the place of the one that is watched gives its signs, too.
func TestSignsOfAGroupThatWasMadeAnew(t *testing.T) {
	var group uint64
	open, watched := 0, 0
	s := signs{
		machine: func(func()) error { return nil },
		number: func(string) (uint64, error) {
			if group == 0 {
				return 0, cgroups.ErrNotFound
			}
			return group, nil
		},
		look: func() {}, log: slog.New(slog.DiscardHandler),
	}
	s.memory = func(string, func(error)) (func(), error) {
		if group == 0 {
			return nil, cgroups.ErrNotFound
		}
		open, watched = open+1, watched+1
		return func() { open-- }, nil
	}
	thresholds := []evictionapi.Threshold{{Signal: evictionapi.MemoryAvailable}}
	for _, step := range []struct {
		group      uint64
		open, made int
	}{{0, 0, 0}, {7, 1, 1}, {7, 1, 1}, {8, 1, 2}, {0, 0, 2}, {9, 1, 3}} {
		group = step.group
		s.watch("/kubepods", thresholds)
		if open != step.open || watched != step.made {
			t.Errorf("group %d: %d watches are open, %d were made; want %d and %d", step.group, open, watched, step.open, step.made)
		}
	}
}

// One trigger serves evictions and what looks for kills, whatever the thresholds
// are of.
func TestOneTriggerOfPressure(t *testing.T) {
	for _, tc := range []struct {
		signal        evictionapi.Signal
		wantsKilled   bool
		looks, killed int
	}{
		{evictionapi.MemoryAvailable, true, 1, 1},
		{evictionapi.MemoryAvailable, false, 1, 0},
		{evictionapi.PIDAvailable, true, 0, 1},
		{evictionapi.PIDAvailable, false, 0, 0},
	} {
		looks, killed, armed := 0, 0, 0
		var told func()
		none := func(string, func(error)) (func(), error) { return nil, cgroups.ErrNotFound }
		s := signs{
			machine: func(f func()) error { told, armed = f, armed+1; return nil }, memory: none, tasks: none,
			look: func() { looks++ }, log: slog.New(slog.DiscardHandler),
		}
		if tc.wantsKilled {
			s.killed = func() { killed++ }
		}
		for range 3 {
			s.watch("", []evictionapi.Threshold{{Signal: tc.signal}})
		}
		if wanted := tc.looks + tc.killed; armed > 1 || (armed == 1) != (wanted > 0) {
			t.Errorf("%+v: armed %d times", tc, armed)
		}
		if told != nil {
			told()
		}
		if looks != tc.looks || killed != tc.killed {
			t.Errorf("%+v: %d looks, %d for what was killed", tc, looks, killed)
		}
	}
}

// TestKillAfterTheLastSign has the kernel kill after the sign of pressure that is
// the last one.
func TestKillAfterTheLastSign(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var sign func()
		var kills, reported atomic.Int32
		s := signs{
			machine: func(f func()) error { sign = f; return nil },
			look:    func() {}, log: slog.New(slog.DiscardHandler),
			killed: func() { reported.Store(kills.Load()) },
		}
		s.watch("", nil)
		for range 3 { // each sign puts the late look off
			sign()
			time.Sleep(afterSign - time.Millisecond)
		}
		kills.Store(1)
		if synctest.Wait(); reported.Load() != 0 {
			t.Error("a kill was reported before it was")
		}
		time.Sleep(time.Millisecond)
		if synctest.Wait(); reported.Load() != 1 {
			t.Error("a kill after the last sign was not reported")
		}
		sign()
		kills.Store(2)
		time.Sleep(afterSign)
		if synctest.Wait(); reported.Load() != 2 {
			t.Error("the kill after a later sign was not reported")
		}
	})
}
