package bench

import (
	"cmp"
	"slices"
)

// median is the middle of values, or the mean of the two in the middle. It is
// the zero value without any.
func median[T interface {
	cmp.Ordered
	~int64 | ~float64
}](values []T) T {
	if len(values) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(values))
	half := len(sorted) / 2
	if len(sorted)%2 == 1 {
		return sorted[half]
	}
	return sorted[half-1]/2 + sorted[half]/2
}
