package policy

import (
	"math"

	"k8s.io/apimachinery/pkg/api/resource"
)

// roundUp rounds a quantity up to an integer. It returns math.MaxInt64 for larger
// quantities, for which the result of Quantity.Value is undefined.
func roundUp(q resource.Quantity) int64 {
	if q.CmpInt64(math.MaxInt64) >= 0 {
		return math.MaxInt64
	}
	return q.Value()
}

// saturatingAdd returns a+b, or math.MaxInt64 on overflow. b must not be negative.
func saturatingAdd(a, b int64) int64 {
	if a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
}
