package evictionapi

import (
	"math"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
)

// Value is an amount, or a share of a capacity; the zero Value is nothing.
type Value struct {
	// Amount is in the signal's unit, rounded up to a whole one.
	Amount int64
	// Text is the amount as it was written, for messages.
	Text string
	// Share of the capacity, from 0 to 1, counts where Text is empty. It has
	// 32 bits as upstream's, so that both reckon the same bytes.
	Share float32
}

// Of is the amount for a capacity in the signal's unit.
func (v Value) Of(capacity int64) int64 {
	if v.Text != "" {
		return v.Amount
	}
	amount := float64(capacity) * float64(v.Share)
	if amount >= math.MaxInt64 {
		return math.MaxInt64
	}
	return int64(amount)
}

// Format is the amount as messages have it. Upstream writes a share of anything
// with binary suffixes, of inodes too.
func (v Value) Format(capacity int64) string {
	if v.Text != "" {
		return v.Text
	}
	return resource.NewQuantity(v.Of(capacity), resource.BinarySI).String()
}

// Threshold says from when on there is too little of something.
type Threshold struct {
	Signal Signal
	// Value is met while less than it is available.
	Value Value
	// Grace is how long it must be met before a pod is evicted.
	Grace time.Duration
	// MinReclaim is how much more than Value must be available before a
	// threshold that was acted on counts as met no longer.
	MinReclaim Value
}

// Hard says that pods are evicted at once: so does a soft threshold whose
// grace is zero, as in upstream.
func (t Threshold) Hard() bool { return t.Grace == 0 }

// Met says whether the observation is below the threshold, with held below
// the threshold and its minimum reclaim. What was not observed is not.
func (t Threshold) Met(o Observation, held bool) bool {
	if !o.Known {
		return false
	}
	available := max(o.Available, 0)
	if held {
		available -= t.MinReclaim.Of(o.Capacity) // it is not negative: nothing overflows
	}
	return available < t.Value.Of(o.Capacity)
}

// whole is a quantity rounded up, up to the largest number, where
// Quantity.Value answers anything.
func whole(q resource.Quantity) int64 {
	if q.CmpInt64(math.MaxInt64) >= 0 {
		return math.MaxInt64
	}
	return q.Value()
}
