package policy

import (
	"math"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/tinylet/tinylet/agent/config/evictionapi"
)

var t0 = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func at(seconds int) time.Time { return t0.Add(time.Duration(seconds) * time.Second) }

func TestMet(t *testing.T) {
	share := evictionapi.Value{Share: .1}
	for _, tc := range []struct {
		name      string
		value     evictionapi.Value
		reclaim   evictionapi.Value
		available int64
		held      bool
		want      bool
	}{
		{name: "above", value: quantity(100, "100"), available: 101},
		{name: "as much is enough", value: quantity(100, "100"), available: 100},
		{name: "below", value: quantity(100, "100"), available: 99, want: true},
		{name: "a share", value: share, available: 99, want: true},
		{name: "a share that is there", value: share, available: 100},
		{name: "a minimum reclaim does not count before", value: share, reclaim: quantity(50, "50"), available: 120},
		{name: "but behind", value: share, reclaim: quantity(50, "50"), available: 149, held: true, want: true},
		{name: "until it is there", value: share, reclaim: quantity(50, "50"), available: 150, held: true},
		{name: "a share of it", value: quantity(100, "100"), reclaim: evictionapi.Value{Share: .05}, available: 149, held: true, want: true},
		{name: "more than fits into 64 bits", value: quantity(math.MaxInt64, "x"), reclaim: quantity(math.MaxInt64, "x"), available: math.MaxInt64 - 1, held: true, want: true},
		{name: "more process IDs than there are", value: quantity(1, "1"), available: -5, want: true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			th := evictionapi.Threshold{Signal: evictionapi.PIDAvailable, Value: tc.value, MinReclaim: tc.reclaim}
			o := evictionapi.Observation{Available: tc.available, Capacity: 1000, Known: true}
			if got := th.Met(o, tc.held); got != tc.want {
				t.Errorf("met is %t", got)
			}
			o.Known = false
			if th.Met(o, tc.held) {
				t.Error("met without an observation")
			}
		})
	}
}

// TestTracker runs scenarios: the observations at each second, and the expected
// verdicts.
func TestTracker(t *testing.T) {
	hardMemory := evictionapi.Threshold{Signal: evictionapi.MemoryAvailable, Value: quantity(100, "100")}
	softMemory := evictionapi.Threshold{Signal: evictionapi.MemoryAvailable, Value: quantity(200, "200"), Grace: 30 * time.Second}
	reclaiming := evictionapi.Threshold{Signal: evictionapi.MemoryAvailable, Value: quantity(100, "100"), MinReclaim: quantity(50, "50")}
	pods := evictionapi.Threshold{Signal: evictionapi.AllocatableMemoryAvailable, Value: quantity(100, "100")}
	disk := evictionapi.Threshold{Signal: evictionapi.NodeFsAvailable, Value: quantity(100, "100")}
	pids := evictionapi.Threshold{Signal: evictionapi.PIDAvailable, Value: quantity(100, "100")}
	memory, diskOnly := evictionapi.Conditions{Memory: true}, evictionapi.Conditions{Disk: true}

	type seen map[evictionapi.Signal]int64
	type step struct {
		second int
		seen   seen
		stale  bool // of the second before
		act    []evictionapi.Threshold
		under  evictionapi.Conditions
		over   bool // it is under them for their transition only
		next   int  // 0 is never
	}
	for _, tc := range []struct {
		name       string
		thresholds []evictionapi.Threshold
		transition time.Duration
		steps      []step
	}{
		{name: "nothing is wrong", thresholds: []evictionapi.Threshold{hardMemory, softMemory}, steps: []step{
			{second: 1, seen: seen{evictionapi.MemoryAvailable: 200}}, {second: 2, seen: seen{}},
		}},
		{name: "a hard threshold acts at once and again with what is new", thresholds: []evictionapi.Threshold{hardMemory}, transition: time.Minute, steps: []step{
			{second: 1, seen: seen{evictionapi.MemoryAvailable: 99}, act: []evictionapi.Threshold{hardMemory}, under: memory, next: 11},
			{second: 2, seen: seen{evictionapi.MemoryAvailable: 99}, stale: true, under: memory, next: 12},
			{second: 3, seen: seen{evictionapi.MemoryAvailable: 99}, act: []evictionapi.Threshold{hardMemory}, under: memory, next: 13},
			{second: 4, seen: seen{evictionapi.MemoryAvailable: 100}, under: memory, over: true, next: 63},
			{second: 62, seen: seen{evictionapi.MemoryAvailable: 100}, under: memory, over: true, next: 63},
			{second: 63, seen: seen{evictionapi.MemoryAvailable: 100}},
		}},
		{name: "a soft one waits for its grace", thresholds: []evictionapi.Threshold{softMemory}, transition: time.Minute, steps: []step{
			{second: 1, seen: seen{evictionapi.MemoryAvailable: 199}, under: memory, next: 11},
			{second: 25, seen: seen{evictionapi.MemoryAvailable: 199}, under: memory, next: 31},
			{second: 30, seen: seen{evictionapi.MemoryAvailable: 199}, under: memory, next: 31},
			{second: 31, seen: seen{evictionapi.MemoryAvailable: 199}, act: []evictionapi.Threshold{softMemory}, under: memory, next: 41},
		}},
		{name: "and begins anew when it was not met between", thresholds: []evictionapi.Threshold{softMemory}, transition: time.Minute, steps: []step{
			{second: 1, seen: seen{evictionapi.MemoryAvailable: 199}, under: memory, next: 11},
			{second: 20, seen: seen{evictionapi.MemoryAvailable: 200}, under: memory, over: true, next: 61},
			{second: 29, seen: seen{evictionapi.MemoryAvailable: 199}, under: memory, next: 39},
			{second: 58, seen: seen{evictionapi.MemoryAvailable: 199}, under: memory, next: 59},
			{second: 59, seen: seen{evictionapi.MemoryAvailable: 199}, act: []evictionapi.Threshold{softMemory}, under: memory, next: 69},
		}},
		{name: "or was not observed", thresholds: []evictionapi.Threshold{softMemory}, steps: []step{
			{second: 1, seen: seen{evictionapi.MemoryAvailable: 199}, under: memory, next: 11},
			{second: 20, seen: seen{}},
			{second: 32, seen: seen{evictionapi.MemoryAvailable: 199}, under: memory, next: 42},
		}},
		{name: "hard goes before soft, both are told", thresholds: []evictionapi.Threshold{softMemory, hardMemory}, steps: []step{
			{second: 1, seen: seen{evictionapi.MemoryAvailable: 199}, under: memory, next: 11},
			{second: 31, seen: seen{evictionapi.MemoryAvailable: 9}, act: []evictionapi.Threshold{hardMemory, softMemory}, under: memory, next: 41},
		}},
		{name: "memory goes first, then in the order of signals", thresholds: []evictionapi.Threshold{pids, disk, pods, hardMemory}, steps: []step{
			{
				second: 1, seen: seen{evictionapi.PIDAvailable: 1, evictionapi.NodeFsAvailable: 1, evictionapi.AllocatableMemoryAvailable: 1, evictionapi.MemoryAvailable: 1},
				act: []evictionapi.Threshold{hardMemory, pods, disk, pids}, under: evictionapi.Conditions{Memory: true, Disk: true, PID: true}, next: 11,
			},
		}},
		{name: "a minimum reclaim holds what was acted on", thresholds: []evictionapi.Threshold{reclaiming}, transition: 5 * time.Second, steps: []step{
			{second: 1, seen: seen{evictionapi.MemoryAvailable: 149}},
			{second: 2, seen: seen{evictionapi.MemoryAvailable: 99}, act: []evictionapi.Threshold{reclaiming}, under: memory, next: 12},
			{second: 3, seen: seen{evictionapi.MemoryAvailable: 149}, act: []evictionapi.Threshold{reclaiming}, under: memory, next: 13},
			{second: 4, seen: seen{evictionapi.MemoryAvailable: 150}, under: memory, over: true, next: 8},
			{second: 5, seen: seen{evictionapi.MemoryAvailable: 149}, under: memory, over: true, next: 8},
			{second: 8, seen: seen{evictionapi.MemoryAvailable: 149}},
		}},
		{name: "a soft one is not held before its grace", thresholds: []evictionapi.Threshold{{Signal: evictionapi.MemoryAvailable, Value: quantity(100, "100"), Grace: 30 * time.Second, MinReclaim: quantity(50, "50")}}, steps: []step{
			{second: 1, seen: seen{evictionapi.MemoryAvailable: 99}, under: memory, next: 11},
			{second: 2, seen: seen{evictionapi.MemoryAvailable: 149}},
		}},
		{name: "conditions end each at its time", thresholds: []evictionapi.Threshold{hardMemory, disk}, transition: time.Minute, steps: []step{
			{second: 1, seen: seen{evictionapi.MemoryAvailable: 1, evictionapi.NodeFsAvailable: 100}, act: []evictionapi.Threshold{hardMemory}, under: memory, next: 11},
			{second: 11, seen: seen{evictionapi.MemoryAvailable: 100, evictionapi.NodeFsAvailable: 1}, act: []evictionapi.Threshold{disk}, under: evictionapi.Conditions{Memory: true, Disk: true}, next: 21},
			{second: 21, seen: seen{evictionapi.MemoryAvailable: 100, evictionapi.NodeFsAvailable: 100}, under: evictionapi.Conditions{Memory: true, Disk: true}, over: true, next: 61},
			{second: 61, seen: seen{evictionapi.MemoryAvailable: 100, evictionapi.NodeFsAvailable: 100}, under: diskOnly, over: true, next: 71},
			{second: 71, seen: seen{evictionapi.MemoryAvailable: 100, evictionapi.NodeFsAvailable: 100}},
		}},
		{name: "what was observed before a gap is not new behind it", thresholds: []evictionapi.Threshold{disk}, steps: []step{
			{second: 10, seen: seen{evictionapi.NodeFsAvailable: 1}, act: []evictionapi.Threshold{disk}, under: diskOnly, next: 20},
			{second: 10, seen: seen{}},
			{second: 11, seen: seen{evictionapi.NodeFsAvailable: 1}, stale: true, under: diskOnly, next: 21},
		}},
		{name: "a clock that is set back", thresholds: []evictionapi.Threshold{softMemory, disk}, transition: time.Minute, steps: []step{
			{second: 1000, seen: seen{evictionapi.MemoryAvailable: 199, evictionapi.NodeFsAvailable: 1}, act: []evictionapi.Threshold{disk}, under: evictionapi.Conditions{Memory: true, Disk: true}, next: 1010},
			{second: 1, seen: seen{evictionapi.MemoryAvailable: 199, evictionapi.NodeFsAvailable: 100}, under: evictionapi.Conditions{Memory: true, Disk: true}, next: 11},
			{second: 20, seen: seen{evictionapi.NodeFsAvailable: 100, evictionapi.MemoryAvailable: 199}, under: evictionapi.Conditions{Memory: true, Disk: true}, next: 30},
			{second: 61, seen: seen{evictionapi.NodeFsAvailable: 100, evictionapi.MemoryAvailable: 200}, under: memory, over: true, next: 80},
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			tracker := NewTracker(tc.thresholds, tc.transition)
			for _, s := range tc.steps {
				var o evictionapi.Observations
				for signal, available := range s.seen {
					o[signal] = evictionapi.Observation{Available: available, Capacity: 1000, Known: true, Time: at(s.second)}
					if s.stale {
						o[signal].Time = at(s.second - 1)
					}
				}
				want := Decision{Thresholds: s.act, Conditions: s.under, ThresholdMet: s.under != evictionapi.Conditions{} && !s.over}
				if s.next > 0 {
					want.Next = at(s.next)
				}
				if d := gocmp.Diff(want, tracker.Step(&o, at(s.second))); d != "" {
					t.Errorf("second %d (-want +got):\n%s", s.second, d)
				}
			}
		})
	}
}

func TestTrackerWithoutTimes(t *testing.T) {
	tracker := NewTracker([]evictionapi.Threshold{{Signal: evictionapi.PIDAvailable, Value: quantity(2, "2")}, {Signal: 77}}, 0)
	var o evictionapi.Observations
	o[evictionapi.PIDAvailable] = evictionapi.Observation{Available: 1, Known: true}
	for range 2 {
		if v := tracker.Step(&o, t0); len(v.Thresholds) != 1 || v.Conditions != (evictionapi.Conditions{PID: true}) {
			t.Errorf("an observation without a time is not new: %+v", v)
		}
	}
}

func TestReclaimed(t *testing.T) {
	tracker := NewTracker([]evictionapi.Threshold{
		{Signal: evictionapi.NodeFsAvailable, Value: quantity(100, "100"), MinReclaim: quantity(50, "50")},
		{Signal: evictionapi.MemoryAvailable, Value: quantity(10, "10"), Grace: time.Hour},
	}, 0)
	for _, tc := range []struct {
		name         string
		disk, memory int64
		want         bool
	}{
		{"enough", 150, 10, true},
		{"short of the minimum reclaim, though nothing was acted on", 149, 10, false},
		{"short of another one that is soft", 150, 9, false},
	} {
		var o evictionapi.Observations
		o[evictionapi.NodeFsAvailable] = evictionapi.Observation{Available: tc.disk, Known: true}
		o[evictionapi.MemoryAvailable] = evictionapi.Observation{Available: tc.memory, Known: true}
		if got := tracker.ReclaimSufficed(&o); got != tc.want {
			t.Errorf("%s: %t", tc.name, got)
		}
	}
}
