package policy

import (
	"math"

	"k8s.io/apimachinery/pkg/api/resource"
)

// whole is a quantity rounded up, up to the largest number, where
// Quantity.Value answers anything.
func whole(q resource.Quantity) int64 {
	if q.CmpInt64(math.MaxInt64) >= 0 {
		return math.MaxInt64
	}
	return q.Value()
}

// plus adds amounts of which the second is not negative, up to the largest.
func plus(a, b int64) int64 {
	if a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
}
