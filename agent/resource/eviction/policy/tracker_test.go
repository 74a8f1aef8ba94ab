package policy

import (
	"math"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
)

var t0 = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func at(seconds int) time.Time { return t0.Add(time.Duration(seconds) * time.Second) }

func TestMet(t *testing.T) {
	share := Value{Share: .1}
	for _, tc := range []struct {
		name      string
		value     Value
		reclaim   Value
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
		{name: "a share of it", value: quantity(100, "100"), reclaim: Value{Share: .05}, available: 149, held: true, want: true},
		{name: "more than fits into 64 bits", value: quantity(math.MaxInt64, "x"), reclaim: quantity(math.MaxInt64, "x"), available: math.MaxInt64 - 1, held: true, want: true},
		{name: "more process IDs than there are", value: quantity(1, "1"), available: -5, want: true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			th := Threshold{Signal: PIDAvailable, Value: tc.value, MinReclaim: tc.reclaim}
			o := Observation{Available: tc.available, Capacity: 1000, Known: true}
			if got := th.met(o, tc.held); got != tc.want {
				t.Errorf("met is %t", got)
			}
			o.Known = false
			if th.met(o, tc.held) {
				t.Error("met without an observation")
			}
		})
	}
}

// TestTracker goes through stories: what is observed in which second, and what
// follows.
func TestTracker(t *testing.T) {
	hardMemory := Threshold{Signal: MemoryAvailable, Value: quantity(100, "100")}
	softMemory := Threshold{Signal: MemoryAvailable, Value: quantity(200, "200"), Grace: 30 * time.Second}
	reclaiming := Threshold{Signal: MemoryAvailable, Value: quantity(100, "100"), MinReclaim: quantity(50, "50")}
	pods := Threshold{Signal: AllocatableMemoryAvailable, Value: quantity(100, "100")}
	disk := Threshold{Signal: NodeFsAvailable, Value: quantity(100, "100")}
	pids := Threshold{Signal: PIDAvailable, Value: quantity(100, "100")}
	memory, diskOnly := Conditions{Memory: true}, Conditions{Disk: true}

	type seen map[Signal]int64
	type step struct {
		second int
		seen   seen
		stale  bool // of the second before
		act    []Threshold
		under  Conditions
		over   bool // it is under them for their transition only
		next   int  // 0 is never
	}
	for _, tc := range []struct {
		name       string
		thresholds []Threshold
		transition time.Duration
		steps      []step
	}{
		{name: "nothing is wrong", thresholds: []Threshold{hardMemory, softMemory}, steps: []step{
			{second: 1, seen: seen{MemoryAvailable: 200}}, {second: 2, seen: seen{}},
		}},
		{name: "a hard threshold acts at once and again with what is new", thresholds: []Threshold{hardMemory}, transition: time.Minute, steps: []step{
			{second: 1, seen: seen{MemoryAvailable: 99}, act: []Threshold{hardMemory}, under: memory, next: 11},
			{second: 2, seen: seen{MemoryAvailable: 99}, stale: true, under: memory, next: 12},
			{second: 3, seen: seen{MemoryAvailable: 99}, act: []Threshold{hardMemory}, under: memory, next: 13},
			{second: 4, seen: seen{MemoryAvailable: 100}, under: memory, over: true, next: 63},
			{second: 62, seen: seen{MemoryAvailable: 100}, under: memory, over: true, next: 63},
			{second: 63, seen: seen{MemoryAvailable: 100}},
		}},
		{name: "a soft one waits for its grace", thresholds: []Threshold{softMemory}, transition: time.Minute, steps: []step{
			{second: 1, seen: seen{MemoryAvailable: 199}, under: memory, next: 11},
			{second: 25, seen: seen{MemoryAvailable: 199}, under: memory, next: 31},
			{second: 30, seen: seen{MemoryAvailable: 199}, under: memory, next: 31},
			{second: 31, seen: seen{MemoryAvailable: 199}, act: []Threshold{softMemory}, under: memory, next: 41},
		}},
		{name: "and begins anew when it was not met between", thresholds: []Threshold{softMemory}, transition: time.Minute, steps: []step{
			{second: 1, seen: seen{MemoryAvailable: 199}, under: memory, next: 11},
			{second: 20, seen: seen{MemoryAvailable: 200}, under: memory, over: true, next: 61},
			{second: 29, seen: seen{MemoryAvailable: 199}, under: memory, next: 39},
			{second: 58, seen: seen{MemoryAvailable: 199}, under: memory, next: 59},
			{second: 59, seen: seen{MemoryAvailable: 199}, act: []Threshold{softMemory}, under: memory, next: 69},
		}},
		{name: "or was not observed", thresholds: []Threshold{softMemory}, steps: []step{
			{second: 1, seen: seen{MemoryAvailable: 199}, under: memory, next: 11},
			{second: 20, seen: seen{}},
			{second: 32, seen: seen{MemoryAvailable: 199}, under: memory, next: 42},
		}},
		{name: "hard goes before soft, both are told", thresholds: []Threshold{softMemory, hardMemory}, steps: []step{
			{second: 1, seen: seen{MemoryAvailable: 199}, under: memory, next: 11},
			{second: 31, seen: seen{MemoryAvailable: 9}, act: []Threshold{hardMemory, softMemory}, under: memory, next: 41},
		}},
		{name: "memory goes first, then in the order of signals", thresholds: []Threshold{pids, disk, pods, hardMemory}, steps: []step{
			{
				second: 1, seen: seen{PIDAvailable: 1, NodeFsAvailable: 1, AllocatableMemoryAvailable: 1, MemoryAvailable: 1},
				act: []Threshold{hardMemory, pods, disk, pids}, under: Conditions{true, true, true}, next: 11,
			},
		}},
		{name: "a minimum reclaim holds what was acted on", thresholds: []Threshold{reclaiming}, transition: 5 * time.Second, steps: []step{
			{second: 1, seen: seen{MemoryAvailable: 149}},
			{second: 2, seen: seen{MemoryAvailable: 99}, act: []Threshold{reclaiming}, under: memory, next: 12},
			{second: 3, seen: seen{MemoryAvailable: 149}, act: []Threshold{reclaiming}, under: memory, next: 13},
			{second: 4, seen: seen{MemoryAvailable: 150}, under: memory, over: true, next: 8},
			{second: 5, seen: seen{MemoryAvailable: 149}, under: memory, over: true, next: 8},
			{second: 8, seen: seen{MemoryAvailable: 149}},
		}},
		{name: "a soft one is not held before its grace", thresholds: []Threshold{{Signal: MemoryAvailable, Value: quantity(100, "100"), Grace: 30 * time.Second, MinReclaim: quantity(50, "50")}}, steps: []step{
			{second: 1, seen: seen{MemoryAvailable: 99}, under: memory, next: 11},
			{second: 2, seen: seen{MemoryAvailable: 149}},
		}},
		{name: "conditions end each at its time", thresholds: []Threshold{hardMemory, disk}, transition: time.Minute, steps: []step{
			{second: 1, seen: seen{MemoryAvailable: 1, NodeFsAvailable: 100}, act: []Threshold{hardMemory}, under: memory, next: 11},
			{second: 11, seen: seen{MemoryAvailable: 100, NodeFsAvailable: 1}, act: []Threshold{disk}, under: Conditions{Memory: true, Disk: true}, next: 21},
			{second: 21, seen: seen{MemoryAvailable: 100, NodeFsAvailable: 100}, under: Conditions{Memory: true, Disk: true}, over: true, next: 61},
			{second: 61, seen: seen{MemoryAvailable: 100, NodeFsAvailable: 100}, under: diskOnly, over: true, next: 71},
			{second: 71, seen: seen{MemoryAvailable: 100, NodeFsAvailable: 100}},
		}},
		{name: "what was observed before a gap is not new behind it", thresholds: []Threshold{disk}, steps: []step{
			{second: 10, seen: seen{NodeFsAvailable: 1}, act: []Threshold{disk}, under: diskOnly, next: 20},
			{second: 10, seen: seen{}},
			{second: 11, seen: seen{NodeFsAvailable: 1}, stale: true, under: diskOnly, next: 21},
		}},
		{name: "a clock that is set back", thresholds: []Threshold{softMemory, disk}, transition: time.Minute, steps: []step{
			{second: 1000, seen: seen{MemoryAvailable: 199, NodeFsAvailable: 1}, act: []Threshold{disk}, under: Conditions{Memory: true, Disk: true}, next: 1010},
			{second: 1, seen: seen{MemoryAvailable: 199, NodeFsAvailable: 100}, under: Conditions{Memory: true, Disk: true}, next: 11},
			{second: 20, seen: seen{NodeFsAvailable: 100, MemoryAvailable: 199}, under: Conditions{Memory: true, Disk: true}, next: 30},
			{second: 61, seen: seen{NodeFsAvailable: 100, MemoryAvailable: 200}, under: memory, over: true, next: 80},
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			tracker := NewTracker(tc.thresholds, tc.transition)
			for _, s := range tc.steps {
				var o Observations
				for signal, available := range s.seen {
					o[signal] = Observation{Available: available, Capacity: 1000, Known: true, Time: at(s.second)}
					if s.stale {
						o[signal].Time = at(s.second - 1)
					}
				}
				want := Verdict{Act: s.act, Under: s.under, Short: s.under != Conditions{} && !s.over}
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
	tracker := NewTracker([]Threshold{{Signal: PIDAvailable, Value: quantity(2, "2")}, {Signal: 77}}, 0)
	var o Observations
	o[PIDAvailable] = Observation{Available: 1, Known: true}
	for range 2 {
		if v := tracker.Step(&o, t0); len(v.Act) != 1 || v.Under != (Conditions{PID: true}) {
			t.Errorf("an observation without a time is not new: %+v", v)
		}
	}
}

func TestReclaimed(t *testing.T) {
	tracker := NewTracker([]Threshold{
		{Signal: NodeFsAvailable, Value: quantity(100, "100"), MinReclaim: quantity(50, "50")},
		{Signal: MemoryAvailable, Value: quantity(10, "10"), Grace: time.Hour},
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
		var o Observations
		o[NodeFsAvailable] = Observation{Available: tc.disk, Known: true}
		o[MemoryAvailable] = Observation{Available: tc.memory, Known: true}
		if got := tracker.Reclaimed(&o); got != tc.want {
			t.Errorf("%s: %t", tc.name, got)
		}
	}
}
