package policy

import (
	"cmp"
	"slices"
	"time"

	"github.com/tinylet/tinylet/agent/config/evictionapi"
)

// Recheck is the interval of checks while a threshold is met: resources that
// terminated pods release cause no notification. It equals upstream's
// evictionMonitoringPeriod (pkg/kubelet/kubelet.go).
const Recheck = 10 * time.Second

// Tracker records since when thresholds are met, and until when node conditions hold.
// It is not safe for concurrent use.
type Tracker struct {
	transition time.Duration
	thresholds []tracked
	last       evictionapi.Observations
	lastMet    [3]time.Time // of memory, disk and process IDs
}

// tracked is the state of a threshold: not met (since is zero), met (since is set),
// or met for its grace period (held). From held it returns to not met only once its
// minimum reclaim is available.
type tracked struct {
	evictionapi.Threshold
	since time.Time
	held  bool
}

// Decision is the result of Tracker.Step.
type Decision struct {
	// Thresholds holds the thresholds that have been met for their grace period and have a
	// new observation, in the order in which to act on them: memory, then the other
	// signals, hard before soft. The caller owns it.
	Thresholds []evictionapi.Threshold
	// ThresholdMet reports whether any threshold is met, including those within their grace
	// period.
	ThresholdMet bool
	// Conditions holds the node conditions.
	Conditions evictionapi.Conditions
	// Next is when to call Step with new observations even without a trigger. Zero
	// means never.
	Next time.Time
}

// NewTracker returns a Tracker of the thresholds of a Layout. transition is how long
// a node condition remains after its thresholds were last met.
func NewTracker(thresholds []evictionapi.Threshold, transition time.Duration) *Tracker {
	t := &Tracker{transition: transition, thresholds: make([]tracked, 0, len(thresholds))}
	for _, threshold := range thresholds {
		t.thresholds = append(t.thresholds, tracked{Threshold: threshold})
	}
	slices.SortStableFunc(t.thresholds, func(a, b tracked) int { return order(&a.Threshold, &b.Threshold) })
	return t
}

// order compares thresholds by the order in which to act on them.
func order(a, b *evictionapi.Threshold) int {
	return cmp.Or(cmp.Compare(a.Signal, b.Signal), cmp.Compare(a.Grace, b.Grace))
}

// Step updates the state with new observations (synchronize in
// pkg/kubelet/eviction/eviction_manager.go). A threshold whose signal was not
// observed is not met, and its grace period restarts.
func (t *Tracker) Step(o *evictionapi.Observations, now time.Time) Decision {
	var v Decision
	var met evictionapi.Conditions
	for i := range t.thresholds {
		k := &t.thresholds[i]
		if !k.Signal.Known() {
			continue
		}
		seen := o[k.Signal]
		if !k.Met(seen, k.held) {
			k.since, k.held = time.Time{}, false
			continue
		}
		v.ThresholdMet, met = true, met.Or(k.Signal.Conditions())
		if k.since.IsZero() || now.Before(k.since) {
			k.since = now // a clock step backwards must not delay an eviction
		}
		k.held = now.Sub(k.since) >= k.Grace
		if !k.held {
			v.Next = earlier(v.Next, k.since.Add(k.Grace))
		} else if seen.Newer(t.last[k.Signal]) {
			v.Thresholds = append(v.Thresholds, k.Threshold)
		}
		v.Next = earlier(v.Next, now.Add(Recheck))
	}
	for s := range o {
		if o[s].Known {
			t.last[s] = o[s]
		}
	}
	v.Conditions.Memory = t.conditionHolds(0, met.Memory, now, &v.Next)
	v.Conditions.Disk = t.conditionHolds(1, met.Disk, now, &v.Next)
	v.Conditions.PID = t.conditionHolds(2, met.PID, now, &v.Next)
	return v
}

// conditionHolds reports whether a node condition holds. If it holds only for its transition
// period, conditionHolds sets next to the end of that period, unless next is earlier.
func (t *Tracker) conditionHolds(i int, met bool, now time.Time, next *time.Time) bool {
	last := &t.lastMet[i]
	switch {
	case met:
		*last = now
		return true
	case last.IsZero():
		return false
	case now.Before(*last):
		*last = now
	}
	until := last.Add(t.transition)
	if !now.Before(until) {
		*last = time.Time{}
		return false
	}
	*next = earlier(*next, until)
	return true
}

// ReclaimSufficed reports whether node-level reclaim was sufficient, so that no pod must be
// evicted: no threshold, hard or soft, is met, each with its minimum reclaim
// (reclaimNodeLevelResources in eviction_manager.go). It does not change the Tracker.
func (t *Tracker) ReclaimSufficed(o *evictionapi.Observations) bool {
	for i := range t.thresholds {
		if k := &t.thresholds[i]; k.Signal.Known() && k.Met(o[k.Signal], true) {
			return false
		}
	}
	return true
}

// Preceded reports whether a hard threshold is met that precedes acted in the order
// of action. It does not change the Tracker.
func (t *Tracker) Preceded(acted *evictionapi.Threshold, o *evictionapi.Observations) bool {
	for i := range t.thresholds {
		k := &t.thresholds[i]
		if order(&k.Threshold, acted) >= 0 {
			return false
		}
		if k.Signal.Known() && k.Hard() && k.Met(o[k.Signal], k.held) {
			return true
		}
	}
	return false
}

// earlier returns the earlier of two times. A zero a is ignored.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || b.Before(a) {
		return b
	}
	return a
}
