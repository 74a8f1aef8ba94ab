package resize

import (
	"cmp"
	"math"
)

// Amount is a number that may not be known.
type Amount struct {
	Value int64
	Known bool
}

// Known is an amount that is.
func Known(value int64) Amount { return Amount{Value: value, Known: true} }

// Actual is what a running container has, in the measures of CRI's
// LinuxContainerResources, which the kernel rounds to: comparing them is
// exact. What the runtime does not tell is not known, and never a reason to
// change or to restart anything.
type Actual struct {
	// CPUShares are cgroup v1's, 2 to 262144.
	CPUShares Amount
	// CPUQuota is microseconds in each CPUPeriod; 0 or less is no limit.
	CPUQuota  Amount
	CPUPeriod int64
	// MemoryLimit is bytes; 0 is no limit.
	MemoryLimit Amount
	// MemoryRequest is bytes. No runtime tells it: it is from the agent's own
	// record.
	MemoryRequest Amount
}

// Bounds and scales of CPU shares and quotas (pkg/kubelet/cm/helpers_linux.go).
const (
	minShares     = 2
	maxShares     = 262144
	sharesPerCPU  = 1024
	minQuota      = 1000   // microseconds
	defaultPeriod = 100000 // microseconds
	minMilliLimit = 10     // what minQuota is
)

// Observed is what the fields of CRI's LinuxContainerResources tell in a
// ContainerStatus. The runtime leaves out what was never set: shares and a
// period of zero are not known; memory is, zero being no limit
// (toKubeContainerResources in pkg/kubelet/kuberuntime).
func Observed(shares, quota, period, memory int64) Actual {
	a := Actual{CPUPeriod: period, MemoryLimit: Known(max(memory, 0))}
	if shares > 0 {
		a.CPUShares = Known(shares)
	}
	if period > 0 {
		a.CPUQuota = Known(max(quota, 0))
	}
	return a
}

// Recorded is what a container has that was started or updated with the
// values; zero is the kubelet's period.
func Recorded(v Values, period int64) Actual {
	period = cmp.Or(period, defaultPeriod)
	return Actual{
		CPUShares: Known(sharesOf(v.CPURequest)), CPUQuota: Known(quotaOf(v.CPULimit, period)), CPUPeriod: period,
		MemoryLimit: Known(v.MemoryLimit), MemoryRequest: Known(v.MemoryRequest),
	}
}

// Or is a with what it does not know from the record.
func (a Actual) Or(record Actual) Actual {
	if !a.CPUShares.Known {
		a.CPUShares = record.CPUShares
	}
	if !a.CPUQuota.Known {
		a.CPUQuota, a.CPUPeriod = record.CPUQuota, record.CPUPeriod
	}
	if !a.MemoryLimit.Known {
		a.MemoryLimit = record.MemoryLimit
	}
	if !a.MemoryRequest.Known {
		a.MemoryRequest = record.MemoryRequest
	}
	return a
}

// cpuRequest and cpuLimit are thousandths; zero is none or not known.
func (a Actual) cpuRequest() int64 {
	if !a.CPUShares.Known || a.CPUShares.Value < minShares {
		return 0
	}
	shares := min(a.CPUShares.Value, maxShares)
	return (shares*1000 + sharesPerCPU - 1) / sharesPerCPU
}

func (a Actual) cpuLimit() int64 {
	if !a.CPUQuota.Known || a.CPUQuota.Value <= 0 || a.CPUPeriod <= 0 {
		return 0
	}
	if a.CPUQuota.Value > math.MaxInt64/1000 {
		return maxMilli
	}
	return a.CPUQuota.Value * 1000 / a.CPUPeriod
}

// cpuChange says whether the values have another limit, or else another
// request, of cpu: more is positive, less negative. noQuota says that the
// node sets no limits of cpu.
func (a Actual) cpuChange(v Values, noQuota bool) int {
	if !noQuota {
		period := a.CPUPeriod
		if period <= 0 {
			period = defaultPeriod
		}
		if d := limitChange(a.CPUQuota, quotaOf(v.CPULimit, period)); d != 0 {
			return d
		}
	}
	if !a.CPUShares.Known {
		return 0
	}
	return cmp.Compare(sharesOf(v.CPURequest), a.CPUShares.Value)
}

// memoryChange is the same of memory. The request counts, although no cgroup
// has it, since the OOM score follows it.
func (a Actual) memoryChange(v Values) int {
	if d := limitChange(a.MemoryLimit, v.MemoryLimit); d != 0 {
		return d
	}
	if !a.MemoryRequest.Known {
		return 0
	}
	return cmp.Compare(v.MemoryRequest, a.MemoryRequest.Value)
}

// limitChange compares limits, of which a missing one is the highest. To take
// a limit away is no change: the API server does not let anybody ask for it,
// and runtimes ignore it.
func limitChange(has Amount, wanted int64) int {
	switch {
	case !has.Known || wanted <= 0:
		return 0
	case has.Value <= 0:
		return -1
	}
	return cmp.Compare(wanted, has.Value)
}

func sharesOf(milli int64) int64 {
	return min(max(milli*sharesPerCPU/1000, minShares), maxShares)
}

func quotaOf(milli, period int64) int64 {
	if milli <= 0 {
		return 0
	}
	if milli > math.MaxInt64/period {
		return math.MaxInt64
	}
	return max(milli*period/1000, minQuota)
}
