package evictionapi

import "time"

// Observation is how much of something there is, in the signal's unit. For
// memory upstream takes as capacity what is available and the working set
// together.
type Observation struct {
	Available, Capacity int64
	// Time is when it was measured, best with the monotonic reading that
	// time.Now gives: a clock that is set back would hide what is new. Zero
	// is always new.
	Time time.Time
	// Known says that it was measured at all.
	Known bool
}

// Newer says whether an observation tells something that an earlier one of
// the same signal did not (thresholdsUpdatedStats in
// pkg/kubelet/eviction/helpers.go).
func (o Observation) Newer(last Observation) bool {
	return o.Known && (!last.Known || o.Time.IsZero() || o.Time.After(last.Time))
}

// Observations are those of all signals at one time, by Signal.
type Observations [Signals]Observation
