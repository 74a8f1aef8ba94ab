package policy

import (
	"math"

	"k8s.io/apimachinery/pkg/api/resource"
)

// whole rounds a quantity up to an integer. It returns math.MaxInt64 for larger
// quantities, for which the result of Quantity.Value is undefined.
func whole(q resource.Quantity) int64 {
	if q.CmpInt64(math.MaxInt64) >= 0 {
		return math.MaxInt64
	}
	return q.Value()
}

// plus returns a+b, or math.MaxInt64 on overflow. b must not be negative.
func plus(a, b int64) int64 {
	if a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
}
