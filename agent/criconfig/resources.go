package criconfig

import (
	"cmp"
	"math"
	"strconv"
	"strings"
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

// request is what is asked for, or the limit where only that is set: the
// API's defaulting does the same to a container.
func request(r *v1.ResourceRequirements, name v1.ResourceName) resource.Quantity {
	if q, ok := r.Requests[name]; ok {
		return q
	}
	return r.Limits[name]
}

func limit(r *v1.ResourceRequirements, name v1.ResourceName) resource.Quantity {
	return r.Limits[name]
}

// totals are what a pod's containers ask for and may use together.
type totals struct {
	cpuRequest, cpuLimit, memoryLimit resource.Quantity
	// allCPU and allMemory say that no container goes without a limit.
	allCPU, allMemory bool
}

// totalsOf adds up the containers; since init containers run one after the
// other before them, only the largest of those counts, with the sidecars
// started before it (k8s.io/component-helpers/resource).
func totalsOf(p *v1.Pod) totals {
	t := totals{
		cpuRequest:  total(p, func(r *v1.ResourceRequirements) resource.Quantity { return request(r, v1.ResourceCPU) }),
		cpuLimit:    total(p, func(r *v1.ResourceRequirements) resource.Quantity { return limit(r, v1.ResourceCPU) }),
		memoryLimit: total(p, func(r *v1.ResourceRequirements) resource.Quantity { return limit(r, v1.ResourceMemory) }),
		allCPU:      true, allMemory: true,
	}
	for _, list := range [][]v1.Container{p.Spec.InitContainers, p.Spec.Containers} {
		for i := range list {
			t.allCPU = t.allCPU && !list[i].Resources.Limits.Cpu().IsZero()
			t.allMemory = t.allMemory && !list[i].Resources.Limits.Memory().IsZero()
		}
	}
	return t
}

func total(p *v1.Pod, of func(*v1.ResourceRequirements) resource.Quantity) resource.Quantity {
	var sum, sidecars, peak resource.Quantity
	for i := range p.Spec.Containers {
		sum.Add(of(&p.Spec.Containers[i].Resources))
	}
	for i := range p.Spec.InitContainers {
		c := &p.Spec.InitContainers[i]
		use := of(&c.Resources)
		if pod.IsRestartableInit(c) {
			sum.Add(use)
			sidecars.Add(use)
			use = sidecars.DeepCopy()
		} else {
			use.Add(sidecars)
		}
		if use.Cmp(peak) > 0 {
			peak = use
		}
	}
	if peak.Cmp(sum) > 0 {
		return peak
	}
	return sum
}

// linuxResources are the limits of one sandbox or container
// (calculateLinuxResources in pkg/kubelet/kuberuntime).
func linuxResources(cpuRequest, cpuLimit, memoryLimit resource.Quantity, n *Node) *runtimeapi.LinuxContainerResources {
	r := &runtimeapi.LinuxContainerResources{
		CpuShares:          shares(milli(cpuRequest)),
		MemoryLimitInBytes: whole(memoryLimit),
	}
	if n.CPUCFSQuota {
		r.CpuPeriod = n.quotaPeriod()
		r.CpuQuota = quota(milli(cpuLimit), r.CpuPeriod)
	}
	if !n.SingleProcessOOMKill {
		r.Unified = map[string]string{"memory.oom.group": "1"}
	}
	return r
}

func sandboxResources(p *v1.Pod, n *Node) *runtimeapi.LinuxContainerResources {
	t := totalsOf(p)
	return linuxResources(t.cpuRequest, t.cpuLimit, t.memoryLimit, n)
}

func containerResources(p *v1.Pod, c *v1.Container, n *Node) *runtimeapi.LinuxContainerResources {
	r := &c.Resources
	out := linuxResources(request(r, v1.ResourceCPU), limit(r, v1.ResourceCPU), limit(r, v1.ResourceMemory), n)
	out.OomScoreAdj = oomScoreAdj(p, c, n.MemoryCapacity)
	for _, size := range n.HugePageSizes {
		out.HugepageLimits = append(out.HugepageLimits, &runtimeapi.HugepageLimit{PageSize: size})
	}
	if n.SwapAccounting {
		if out.Unified == nil {
			out.Unified = map[string]string{}
		}
		out.Unified["memory.swap.max"] = "0"
	}
	return out
}

// HugePageSize is the name that cgroups and CRI give a folder of
// /sys/kernel/mm/hugepages: 2MB for hugepages-2048kB.
func HugePageSize(folder string) (string, bool) {
	digits, ok := strings.CutPrefix(folder, "hugepages-")
	if ok {
		digits, ok = strings.CutSuffix(digits, "kB")
	}
	kb, err := strconv.ParseUint(digits, 10, 53)
	if !ok || err != nil || kb == 0 {
		return "", false
	}
	units := []string{"KB", "MB", "GB", "TB", "PB"}
	i := 0
	for ; kb >= 1024 && i < len(units)-1; i++ {
		kb /= 1024
	}
	return strconv.FormatUint(kb, 10) + units[i], true
}
