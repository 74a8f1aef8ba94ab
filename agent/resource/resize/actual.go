package resize

import (
	"cmp"
	"math"

	"github.com/tinylet/tinylet/agent/pod"
)

// Amount is a number that may be unknown. The Value of an unknown one is 0.
type Amount struct {
	Value int64
	Known bool
}

// Known returns a known Amount.
func Known(value int64) Amount { return Amount{Value: value, Known: true} }

// Actual holds the resources of a running container, in the units of CRI's
// LinuxContainerResources, to which the kernel rounds: comparing them is exact. A
// value that the runtime does not report is unknown, and never a reason for a change
// or a restart.
type Actual struct {
	// CPUShares are those of cgroup v1, 2 to 262144.
	CPUShares Amount
	// CPUQuota is in microseconds per CPUPeriod; 0 or less means no limit.
	CPUQuota  Amount
	CPUPeriod int64
	// MemoryLimit is in bytes; 0 means no limit.
	MemoryLimit Amount
	// MemoryRequest is in bytes. No runtime reports it; it comes from the agent's own
	// record.
	MemoryRequest Amount
}

// minMilliLimit is the CPU limit that corresponds to pod.MinQuota.
const minMilliLimit = 10

// Observed returns the Actual for the fields of CRI's LinuxContainerResources in a
// ContainerStatus. The runtime omits what was never set: shares and a period of 0 are
// unknown; a memory limit of 0 is known and means no limit (toKubeContainerResources
// in pkg/kubelet/kuberuntime).
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

// Recorded returns the Actual of a container that was started or updated with the
// values.
func Recorded(v Values) Actual {
	return Actual{
		CPUShares: Known(pod.CPUShares(v.CPURequest)), CPUQuota: Known(pod.CPUQuota(v.CPULimit, pod.DefaultPeriod)), CPUPeriod: pod.DefaultPeriod,
		MemoryLimit: Known(v.MemoryLimit), MemoryRequest: Known(v.MemoryRequest),
	}
}

// cpuRequest and cpuLimit return millicores; 0 means none or unknown.
func (a Actual) cpuRequest() int64 {
	if !a.CPUShares.Known || a.CPUShares.Value < pod.MinShares {
		return 0
	}
	shares := min(a.CPUShares.Value, pod.MaxShares)
	return (shares*1000 + pod.SharesPerCPU - 1) / pod.SharesPerCPU
}

func (a Actual) cpuLimit() int64 {
	if !a.CPUQuota.Known || a.CPUQuota.Value <= 0 || a.CPUPeriod <= 0 {
		return 0
	}
	if a.CPUQuota.Value > math.MaxInt64/1000 {
		return pod.MaxMilli
	}
	return a.CPUQuota.Value * 1000 / a.CPUPeriod
}

// cpuChange reports whether the values change the CPU limit, or else the CPU request:
// positive is an increase, negative a decrease. noQuota means that the node sets no
// CPU limits.
func (a Actual) cpuChange(v Values, noQuota bool) int {
	if !noQuota {
		period := a.CPUPeriod
		if period <= 0 {
			period = pod.DefaultPeriod
		}
		if d := limitChange(a.CPUQuota, pod.CPUQuota(v.CPULimit, period)); d != 0 {
			return d
		}
	}
	if !a.CPUShares.Known {
		return 0
	}
	return cmp.Compare(pod.CPUShares(v.CPURequest), a.CPUShares.Value)
}

// memoryChange is cpuChange for memory. The request counts although no cgroup has it,
// because oom_score_adj depends on it.
func (a Actual) memoryChange(v Values) int {
	if d := limitChange(a.MemoryLimit, v.MemoryLimit); d != 0 {
		return d
	}
	if !a.MemoryRequest.Known {
		return 0
	}
	return cmp.Compare(v.MemoryRequest, a.MemoryRequest.Value)
}

// limitChange compares limits; a missing one is the highest. Removing a limit is no
// change: the API server does not allow it, and runtimes ignore it.
func limitChange(has Amount, desired int64) int {
	switch {
	case !has.Known || desired <= 0:
		return 0
	case has.Value <= 0:
		return -1
	}
	return cmp.Compare(desired, has.Value)
}
