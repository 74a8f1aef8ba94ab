package pod

import (
	"math"

	"k8s.io/apimachinery/pkg/api/resource"
)

// Bounds and scales of CPU shares and quotas (pkg/kubelet/cm/helpers_linux.go).
const (
	MinShares     = 2
	MaxShares     = 262144
	SharesPerCPU  = 1024
	MinQuota      = 1000   // microseconds
	DefaultPeriod = 100000 // microseconds
)

// MaxMilli is the largest result of MilliValue, so that no arithmetic overflows with a
// hostile quantity: a billion CPUs.
const MaxMilli = 1_000_000_000_000

// MilliValue returns q in thousandths, at least 0 and at most MaxMilli. A quantity
// may exceed int64: the comparison is exact, the conversion is not.
func MilliValue(q resource.Quantity) int64 {
	switch {
	case q.Sign() <= 0:
		return 0
	case q.CmpInt64(MaxMilli/1000) >= 0:
		return MaxMilli
	}
	return q.MilliValue()
}

// Value returns q in whole units, such as bytes, rounded up, at least 0 and at most
// math.MaxInt64.
func Value(q resource.Quantity) int64 {
	switch {
	case q.Sign() <= 0:
		return 0
	case q.CmpInt64(math.MaxInt64) >= 0:
		return math.MaxInt64
	}
	return q.Value()
}

// AddSaturating returns a+b, or math.MaxInt64 on overflow. b must not be negative.
func AddSaturating[T ~int64](a, b T) T {
	if a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
}

// CPUShares converts thousandths of CPUs to cgroup v1's CPU shares, CRI's unit.
func CPUShares(milli int64) int64 {
	return min(max(milli*SharesPerCPU/1000, MinShares), MaxShares)
}

// CPUQuota converts thousandths of CPUs to microseconds for each period, the unit
// of CRI and of the kernel. 0 means no quota.
func CPUQuota(milli, period int64) int64 {
	switch {
	case milli <= 0:
		return 0
	case milli > math.MaxInt64/period:
		return math.MaxInt64
	}
	return max(milli*period/1000, MinQuota)
}
