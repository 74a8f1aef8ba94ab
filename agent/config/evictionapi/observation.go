package evictionapi

import "time"

// Observation is a measurement of a signal, in the signal's unit. For memory,
// Capacity is the sum of the available memory and the working set, as upstream.
type Observation struct {
	Available, Capacity int64
	// Time is when the signal was measured. It should have the monotonic
	// reading of time.Now: after the clock is set back, a new observation would
	// otherwise count as old. The zero time always counts as new.
	Time time.Time
	// Known means that the signal was measured.
	Known bool
}

// Newer reports whether o is newer than last, an observation of the same signal
// (thresholdsUpdatedStats in pkg/kubelet/eviction/helpers.go).
func (o Observation) Newer(last Observation) bool {
	return o.Known && (!last.Known || o.Time.IsZero() || o.Time.After(last.Time))
}

// Observations are the observations of all signals at one time, by Signal.
type Observations [NumSignals]Observation
