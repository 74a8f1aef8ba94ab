package criconfig

import (
	"math"
	"os"
	"strconv"

	v1 "k8s.io/api/core/v1"

	"github.com/tinylet/tinylet/agent/pod"
)

// The kernel's files of memory protection and throttling
// (Documentation/admin-guide/cgroup-v2.rst).
const (
	fileMemoryMin  = "memory.min"
	fileMemoryLow  = "memory.low"
	fileMemoryHigh = "memory.high"
)

// reserve is the file in which a class's memory is protected: of Guaranteed
// pods nothing is taken back, of Burstable ones only where nothing else is
// left (KEP-2570, TieredReservation).
func reserve(class v1.PodQOSClass) string {
	if class == v1.PodQOSGuaranteed {
		return fileMemoryMin
	}
	return fileMemoryLow
}

// protectPod protects what the pod asks for, and nothing more: its group may
// have what it asked for before a resize, or by another configuration.
func protectPod(files map[string]string, p *v1.Pod, n *Node) {
	if n.MemoryAccounting {
		files[fileMemoryMin], files[fileMemoryLow] = "0", "0"
	}
	if asked := whole(pod.Requests(p)[v1.ResourceMemory]); n.MemoryQoS && asked > 0 {
		files[reserve(pod.QoS(p))] = strconv.FormatInt(asked, 10)
	}
}

// memoryQoS protects what a container asks for, and holds it back before its
// limit, above which it is killed: from its request on by the factor of what
// lies between that and the limit, or, without a limit, all that is not reserved
// (generateLinuxContainerResources in pkg/kubelet/kuberuntime). So no container
// is held back within its request, nor one whose request is its limit, nor one
// that has neither.
func memoryQoS(files map[string]string, p *v1.Pod, c *v1.Container, n *Node) {
	if !n.MemoryQoS && n.MemoryThrottling == 0 {
		return
	}
	request, limit := whole(c.Resources.Requests[v1.ResourceMemory]), whole(c.Resources.Limits[v1.ResourceMemory])
	if n.MemoryQoS && request > 0 {
		files[reserve(pod.QoS(p))] = strconv.FormatInt(request, 10)
	}
	if request == limit || n.MemoryThrottling == 0 {
		return
	}
	if limit == 0 {
		limit = n.MemoryUnreserved
	}
	if high := throttle(request, limit, n.MemoryThrottling); high > request {
		files[fileMemoryHigh] = strconv.FormatInt(high, 10)
	}
}

// MemoryQoS are the files of a container that there is, for its group to be
// brought up to date after a resize: all that there may be, where a new one has
// only what is not the kernel's beginning. nil is that nothing is written.
func MemoryQoS(p *v1.Pod, c *v1.Container, n *Node) map[string]string {
	if !n.MemoryQoS && n.MemoryThrottling == 0 {
		return nil
	}
	files := map[string]string{fileMemoryMin: "0", fileMemoryLow: "0", fileMemoryHigh: "max"}
	memoryQoS(files, p, c, n)
	return files
}

// throttle is where a container is held back, in whole pages.
func throttle(request, limit int64, factor float64) int64 {
	page := float64(os.Getpagesize())
	bytes := float64(request) + (float64(limit)-float64(request))*factor
	if bytes >= math.MaxInt64 {
		return 0
	}
	return int64(math.Floor(bytes/page)) * int64(page)
}

// swapLimit is what a container may swap: nothing, or, where the node lets
// pods swap, a Burstable container that is not critical the share of the swap
// space that its request is of the memory (KEP-2400, LimitedSwap). Swap in
// memory, as zram, counts like any other.
func swapLimit(p *v1.Pod, c *v1.Container, n *Node) int64 {
	request, limit := whole(c.Resources.Requests[v1.ResourceMemory]), whole(c.Resources.Limits[v1.ResourceMemory])
	if !n.LimitedSwap || pod.IsCritical(p) || pod.QoS(p) != v1.PodQOSBurstable || request == limit {
		return 0
	}
	if n.MemoryCapacity <= 0 || request > n.MemoryCapacity {
		return 0
	}
	return int64(float64(request) / float64(n.MemoryCapacity) * float64(n.SwapCapacity))
}

// plus adds amounts that are not negative, up to the largest.
func plus(a, b int64) int64 {
	if a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
}
