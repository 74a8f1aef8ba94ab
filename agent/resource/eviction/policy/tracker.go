package policy

import "github.com/tinylet/tinylet/agent/config/evictionapi"

import (
	"cmp"
	"slices"
	"time"
)

// Recheck is when a node that is short is looked at again: what pods leave
// behind when they end makes no noise (evictionMonitoringPeriod in
// pkg/kubelet/kubelet.go).
const Recheck = 10 * time.Second

// Tracker remembers since when thresholds are met, and until when node
// conditions hold. It is one goroutine's.
type Tracker struct {
	transition time.Duration
	thresholds []tracked
	last       evictionapi.Observations
	lastMet    [3]time.Time // of memory, disk and process IDs
}

// tracked is the state of a threshold: not met (since is zero), met (since is
// set), or met for its grace (held), from where it goes back only once its
// minimum reclaim is there.
type tracked struct {
	evictionapi.Threshold
	since time.Time
	held  bool
}

// Verdict is what follows from observations.
type Verdict struct {
	// Act are the thresholds that have been met for their grace and of which
	// something new was observed, the first to be acted on first: memory, then
	// the other signals, hard before soft. It is the caller's.
	Act []evictionapi.Threshold
	// Short says that a threshold is met, be it within its grace.
	Short bool
	// Under are the node conditions.
	Under evictionapi.Conditions
	// Next is when Step is to be called with new observations although
	// nothing happened; zero is never.
	Next time.Time
}

// NewTracker makes a Tracker of the thresholds of a Layout. Transition is how
// long a node condition stays after its thresholds were last met.
func NewTracker(thresholds []evictionapi.Threshold, transition time.Duration) *Tracker {
	t := &Tracker{transition: transition, thresholds: make([]tracked, 0, len(thresholds))}
	for _, threshold := range thresholds {
		t.thresholds = append(t.thresholds, tracked{Threshold: threshold})
	}
	slices.SortStableFunc(t.thresholds, func(a, b tracked) int { return order(&a.Threshold, &b.Threshold) })
	return t
}

// order compares thresholds by the order in which they are acted on.
func order(a, b *evictionapi.Threshold) int {
	return cmp.Or(cmp.Compare(a.Signal, b.Signal), cmp.Compare(a.Grace, b.Grace))
}

// Step takes what was observed until now (synchronize in
// pkg/kubelet/eviction/eviction_manager.go). A threshold whose signal was not
// observed is not met and begins anew.
func (t *Tracker) Step(o *evictionapi.Observations, now time.Time) Verdict {
	var v Verdict
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
		v.Short, met = true, met.Or(k.Signal.Conditions())
		if k.since.IsZero() || now.Before(k.since) {
			k.since = now // a clock that is set back does not hold up an eviction
		}
		k.held = now.Sub(k.since) >= k.Grace
		if !k.held {
			v.Next = sooner(v.Next, k.since.Add(k.Grace))
		} else if seen.Newer(t.last[k.Signal]) {
			v.Act = append(v.Act, k.Threshold)
		}
		v.Next = sooner(v.Next, now.Add(Recheck))
	}
	for s := range o {
		if o[s].Known {
			t.last[s] = o[s]
		}
	}
	v.Under.Memory = t.holds(0, met.Memory, now, &v.Next)
	v.Under.Disk = t.holds(1, met.Disk, now, &v.Next)
	v.Under.PID = t.holds(2, met.PID, now, &v.Next)
	return v
}

// holds says whether a node condition holds, and brings next forward to when
// it will not.
func (t *Tracker) holds(i int, met bool, now time.Time, next *time.Time) bool {
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
	*next = sooner(*next, until)
	return true
}

// Reclaimed says whether what the node itself gave back is enough, so that no
// pod has to go: no threshold at all, not even a soft one, is met, each with
// its minimum reclaim (reclaimNodeLevelResources in eviction_manager.go). It
// changes nothing.
func (t *Tracker) Reclaimed(o *evictionapi.Observations) bool {
	for i := range t.thresholds {
		if k := &t.thresholds[i]; k.Signal.Known() && k.Met(o[k.Signal], true) {
			return false
		}
	}
	return true
}

// Overtaken says whether a hard threshold is met that is acted on before this
// one. It changes nothing.
func (t *Tracker) Overtaken(acted *evictionapi.Threshold, o *evictionapi.Observations) bool {
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

// sooner is the earlier of two times of which the first may be zero.
func sooner(a, b time.Time) time.Time {
	if a.IsZero() || b.Before(a) {
		return b
	}
	return a
}
