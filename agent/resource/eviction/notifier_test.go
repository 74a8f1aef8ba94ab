package eviction

import (
	"errors"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tinylet/tinylet/agent/config/evictionapi"
	"github.com/tinylet/tinylet/cgroups"
)

// fakeNotifications counts its watches. A nil function fails with cgroups.ErrNotFound.
type fakeNotifications struct {
	pressure     func(f func()) error
	armed        int // watches of the machine
	memory, pids func() (stop func(), err error)
	id           uint64
}

func (n *fakeNotifications) MemoryPressure(f func()) (func(), error) {
	if n.pressure != nil {
		if err := n.pressure(f); err != nil {
			return nil, err
		}
	}
	n.armed++
	return func() { n.armed-- }, nil
}

func watchOr(watch func() (func(), error)) (func(), error) {
	if watch == nil {
		return nil, cgroups.ErrNotFound
	}
	return watch()
}

func (n *fakeNotifications) Memory(string, func(error)) (func(), error) { return watchOr(n.memory) }
func (n *fakeNotifications) Pids(string, func(error)) (func(), error)   { return watchOr(n.pids) }

func (n *fakeNotifications) ID(string) (uint64, error) {
	if n.id == 0 {
		return 0, cgroups.ErrNotFound
	}
	return n.id, nil
}

func newNotifier(source Notifications) *notifier {
	return &notifier{source: source, trigger: func() {}, log: slog.New(slog.DiscardHandler)}
}

// A cgroup that replaced the watched one at its path is watched in its place.
func TestReplacedCgroupIsWatched(t *testing.T) {
	open, watched := 0, 0
	f := &fakeNotifications{}
	f.memory = func() (func(), error) {
		if f.id == 0 {
			return nil, cgroups.ErrNotFound
		}
		open, watched = open+1, watched+1
		return func() { open-- }, nil
	}
	n := newNotifier(f)
	thresholds := []evictionapi.Threshold{{Signal: evictionapi.MemoryAvailable}}
	for _, step := range []struct {
		id            uint64
		open, watched int
	}{{0, 0, 0}, {7, 1, 1}, {7, 1, 1}, {8, 1, 2}, {0, 0, 2}, {9, 1, 3}} {
		f.id = step.id
		n.watch("/kubepods", thresholds)
		if open != step.open || watched != step.watched {
			t.Errorf("cgroup %d: %d watches are open, %d were started; want %d and %d", step.id, open, watched, step.open, step.watched)
		}
	}
}

// A watch that cannot start at one check starts at a later one, once.
func TestWatchIsRetried(t *testing.T) {
	asked := map[string]int{}
	fails := map[string]error{"machine": errors.New("too many open files"), "memory": cgroups.ErrNotFound}
	ask := func(what string) error { asked[what]++; return fails[what] }
	n := newNotifier(&fakeNotifications{
		pressure: func(func()) error { return ask("machine") },
		memory:   func() (func(), error) { return func() {}, ask("memory") },
		pids:     func() (func(), error) { return func() {}, ask("pids") },
	})
	thresholds := []evictionapi.Threshold{{Signal: evictionapi.MemoryAvailable}, {Signal: evictionapi.PIDAvailable}}
	n.watch("kubepods", thresholds)
	clear(fails)
	for range 3 {
		n.watch("kubepods", thresholds)
	}
	if d := cmp.Diff(map[string]int{"machine": 2, "memory": 2, "pids": 1}, asked); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

// One PSI trigger serves the thresholds and the check for OOM kills.
func TestOnePressureTrigger(t *testing.T) {
	for _, tc := range []struct {
		signal           evictionapi.Signal
		checksOOM        bool
		triggers, checks int
	}{
		{evictionapi.MemoryAvailable, true, 1, 1},
		{evictionapi.MemoryAvailable, false, 1, 0},
		{evictionapi.PIDAvailable, true, 0, 1},
		{evictionapi.PIDAvailable, false, 0, 0},
	} {
		triggers, checks, armed := 0, 0, 0
		var notify func()
		n := newNotifier(&fakeNotifications{pressure: func(f func()) error { notify, armed = f, armed+1; return nil }})
		n.trigger = func() { triggers++ }
		if tc.checksOOM {
			n.oomCheck = func() { checks++ }
		}
		for range 3 {
			n.watch("", []evictionapi.Threshold{{Signal: tc.signal}})
		}
		if want := tc.triggers + tc.checks; armed > 1 || (armed == 1) != (want > 0) {
			t.Errorf("%+v: armed %d times", tc, armed)
		}
		if notify != nil {
			notify()
		}
		if triggers != tc.triggers || checks != tc.checks {
			t.Errorf("%+v: %d triggers, %d checks for OOM kills", tc, triggers, checks)
		}
	}
}

// An OOM kill that follows the last notification of memory pressure is found.
func TestOOMKillAfterTheLastNotification(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var notify func()
		var kills, reported atomic.Int32
		n := newNotifier(&fakeNotifications{pressure: func(f func()) error { notify = f; return nil }})
		n.oomCheck = func() { reported.Store(kills.Load()) }
		n.watch("", nil)
		for range 3 { // each notification delays the late check
			notify()
			time.Sleep(lateOOMCheck - time.Millisecond)
		}
		kills.Store(1)
		if synctest.Wait(); reported.Load() != 0 {
			t.Error("a kill was reported before it happened")
		}
		time.Sleep(time.Millisecond)
		if synctest.Wait(); reported.Load() != 1 {
			t.Error("a kill after the last notification was not reported")
		}
		notify()
		kills.Store(2)
		time.Sleep(lateOOMCheck)
		if synctest.Wait(); reported.Load() != 2 {
			t.Error("the kill after a later notification was not reported")
		}
	})
}

// close stops the watches of the machine and of the pods' cgroup, and the late check for OOM
// kills. A notification that was in progress starts none.
func TestCloseStopsEverything(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var notify func()
		open, checks := 0, 0
		f := &fakeNotifications{
			pressure: func(f func()) error { notify = f; return nil },
			memory:   func() (func(), error) { open++; return func() { open-- }, nil },
		}
		n := newNotifier(f)
		n.oomCheck = func() { checks++ }
		n.watch("/kubepods", []evictionapi.Threshold{{Signal: evictionapi.MemoryAvailable}})
		if f.armed != 1 || open != 1 {
			t.Fatalf("%d watches of the machine, %d of the pods", f.armed, open)
		}
		notify()
		n.close()
		notify()
		time.Sleep(time.Hour)
		synctest.Wait()
		if f.armed != 0 || open != 0 || checks != 2 {
			t.Errorf("%d watches of the machine and %d of the pods are open, %d checks for OOM kills", f.armed, open, checks)
		}
	})
}
