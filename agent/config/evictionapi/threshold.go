package evictionapi

import (
	"math"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
)

// Value is an amount, or a share of the capacity. The zero Value means no
// threshold.
type Value struct {
	// Amount is in the signal's unit, rounded up to an integer.
	Amount int64
	// Text is the canonical form of the amount, for messages. It is empty if the
	// value is a share.
	Text string
	// Share is a share of the capacity, from 0 to 1. It is used if Text is empty.
	// It has 32 bits, as upstream's, so that both compute the same bytes.
	Share float32
}

// ForCapacity returns the amount for a capacity in the signal's unit.
func (v Value) ForCapacity(capacity int64) int64 {
	if v.Text != "" {
		return v.Amount
	}
	amount := float64(capacity) * float64(v.Share)
	if amount >= math.MaxInt64 {
		return math.MaxInt64
	}
	return int64(amount)
}

// Format returns the amount as text for messages. As upstream, it formats a share
// with binary suffixes for every signal, also for inodes.
func (v Value) Format(capacity int64) string {
	if v.Text != "" {
		return v.Text
	}
	return resource.NewQuantity(v.ForCapacity(capacity), resource.BinarySI).String()
}

// Threshold is an eviction threshold of a signal.
type Threshold struct {
	Signal Signal
	// Value is the bound: the threshold is met while less is available.
	Value Value
	// Grace is the grace period: how long the threshold must be met before a pod
	// is evicted. It is 0 for a hard threshold.
	Grace time.Duration
	// MinReclaim is the minimum reclaim: how much more than Value must be
	// available before a threshold that caused an eviction is resolved.
	MinReclaim Value
}

// Hard reports whether pods are evicted without a grace period. As in upstream, a
// soft threshold with a grace period of zero is hard.
func (t Threshold) Hard() bool { return t.Grace == 0 }

// Met reports whether the observation is below the threshold. With held it reports
// whether the observation is below the threshold plus its minimum reclaim. It returns
// false for an unknown observation.
func (t Threshold) Met(o Observation, held bool) bool {
	if !o.Known {
		return false
	}
	available := max(o.Available, 0)
	if held {
		available -= t.MinReclaim.ForCapacity(o.Capacity) // neither is negative: no overflow
	}
	return available < t.Value.ForCapacity(o.Capacity)
}
