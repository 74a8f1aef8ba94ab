package criconfig

import (
	"cmp"
	"math"
	"strconv"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/tinylet/tinylet/agent/pod"
)

// Bounds and scales of CPU shares and quotas (pkg/kubelet/cm/helpers_linux.go).
const (
	minShares     = 2
	maxShares     = 262144
	sharesPerCPU  = 1024
	minQuota      = 1000   // microseconds
	defaultPeriod = 100000 // microseconds

	// maxMilli keeps a hostile quantity inside the arithmetic: a billion CPUs.
	maxMilli = 1_000_000_000_000
)

// milli is thousandths. A quantity may be larger than its int64: comparing
// is exact, converting is not.
func milli(q resource.Quantity) int64 {
	switch {
	case q.Sign() <= 0:
		return 0
	case q.CmpInt64(maxMilli/1000) >= 0:
		return maxMilli
	}
	return q.MilliValue()
}

// whole is units, such as bytes.
func whole(q resource.Quantity) int64 {
	switch {
	case q.Sign() <= 0:
		return 0
	case q.CmpInt64(math.MaxInt64) >= 0:
		return math.MaxInt64
	}
	return q.Value()
}

// shares is cgroup v1's measure, in which CRI speaks.
func shares(milli int64) int64 {
	return min(max(milli*sharesPerCPU/1000, minShares), maxShares)
}

// quota is microseconds for each period, both CRI's and the kernel's measure.
func quota(milli, period int64) int64 {
	if milli == 0 {
		return 0
	}
	return max(milli*period/1000, minQuota)
}

func (n *Node) quotaPeriod() int64 {
	return cmp.Or(int64(n.CPUCFSQuotaPeriod/time.Microsecond), defaultPeriod)
}

// linuxResources are the limits of one sandbox or container
// (calculateLinuxResources in pkg/kubelet/kuberuntime). Without a request a
// CPU limit is one.
func linuxResources(requests, limits v1.ResourceList, n *Node) *runtimeapi.LinuxContainerResources {
	cpuLimit := milli(limits[v1.ResourceCPU])
	cpuRequest := cpuLimit
	if q, ok := requests[v1.ResourceCPU]; ok {
		cpuRequest = milli(q)
	}
	r := &runtimeapi.LinuxContainerResources{
		CpuShares:          shares(cpuRequest),
		MemoryLimitInBytes: whole(limits[v1.ResourceMemory]),
	}
	if n.CPUCFSQuota {
		r.CpuPeriod = n.quotaPeriod()
		r.CpuQuota = quota(cpuLimit, r.CpuPeriod)
	}
	if !n.SingleProcessOOMKill {
		r.Unified = map[string]string{"memory.oom.group": "1"}
	}
	return r
}

// sandboxResources are the pod's without its overhead, for runtimes that size
// a virtual machine by them.
func sandboxResources(p *v1.Pod, n *Node) *runtimeapi.LinuxContainerResources {
	bare := overheadLess(p)
	return linuxResources(pod.Requests(bare), pod.Limits(bare), n)
}

// overheadResources are what the sandbox itself takes, request and limit in
// one.
func overheadResources(p *v1.Pod, n *Node) *runtimeapi.LinuxContainerResources {
	if p.Spec.Overhead == nil {
		return &runtimeapi.LinuxContainerResources{}
	}
	return linuxResources(p.Spec.Overhead, p.Spec.Overhead, n)
}

// containerResources are the container's; a limit that it does not set is the
// pod's own (generateLinuxContainerResources in pkg/kubelet/kuberuntime).
func containerResources(p *v1.Pod, c *v1.Container, n *Node) *runtimeapi.LinuxContainerResources {
	out := linuxResources(c.Resources.Requests, limitsIn(p, c), n)
	out.OomScoreAdj = oomScoreAdj(p, c, n.MemoryCapacity)
	out.HugepageLimits = hugePageLimits(p, c, n)
	if out.Unified == nil {
		out.Unified = map[string]string{}
	}
	if n.SwapAccounting {
		out.Unified["memory.swap.max"] = strconv.FormatInt(swapLimit(p, c, n), 10)
	}
	memoryQoS(out.Unified, p, c, n)
	return out
}

// UpdateResources are the limits for an update of a container that there is:
// those that can be resized. The others stay as they are, and some runtimes
// would have huge pages twice.
func UpdateResources(p *v1.Pod, c *v1.Container, n *Node) *runtimeapi.LinuxContainerResources {
	out := linuxResources(c.Resources.Requests, limitsIn(p, c), n)
	out.Unified = nil
	out.OomScoreAdj = oomScoreAdj(p, c, n.MemoryCapacity)
	return out
}

// limitsIn are the container's limits of CPU and memory, or the pod's.
func limitsIn(p *v1.Pod, c *v1.Container) v1.ResourceList {
	own := podLevel(p)
	if own == nil {
		return c.Resources.Limits
	}
	out := v1.ResourceList{}
	for _, name := range []v1.ResourceName{v1.ResourceCPU, v1.ResourceMemory} {
		out[name] = own.Limits[name]
		if positive(c.Resources.Limits, name) {
			out[name] = c.Resources.Limits[name]
		}
	}
	return out
}
