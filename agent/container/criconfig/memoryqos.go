package criconfig

import (
	"math"
	"os"
	"strconv"

	v1 "k8s.io/api/core/v1"

	"github.com/tinylet/tinylet/agent/pod"
)

// The cgroup files of memory protection and throttling
// (Documentation/admin-guide/cgroup-v2.rst).
const (
	fileMemoryMin  = "memory.min"
	fileMemoryLow  = "memory.low"
	fileMemoryHigh = "memory.high"
)

// protectionFile returns the file that protects the memory of a QoS class. The kernel
// never reclaims memory within memory.min, for Guaranteed pods, and reclaims
// memory within memory.low, for Burstable ones, only if nothing else is left
// (KEP-2570, TieredReservation).
func protectionFile(class v1.PodQOSClass) string {
	if class == v1.PodQOSGuaranteed {
		return fileMemoryMin
	}
	return fileMemoryLow
}

// protectPod protects the pod's memory request. It resets the rest, because the
// cgroup may have values from before a resize or from another configuration.
func protectPod(files map[string]string, p *v1.Pod, n *Node) {
	if n.MemoryAccounting {
		files[fileMemoryMin], files[fileMemoryLow] = "0", "0"
	}
	if asked := pod.Value(pod.Requests(p)[v1.ResourceMemory]); n.MemoryQoS && asked > 0 {
		files[protectionFile(pod.QOSClass(p))] = strconv.FormatInt(asked, 10)
	}
}

// setMemoryQoS protects a container's memory request, and throttles the container
// before it reaches its limit, at which it is OOM-killed. memory.high is the request plus
// the fraction Node.MemoryThrottling of the difference between the limit and the request.
// Without a limit Node.MemoryUnreserved replaces it (generateLinuxContainerResources in
// pkg/kubelet/kuberuntime). So no container is throttled within its request. A container
// whose request equals its limit, or that has neither, is not throttled.
func setMemoryQoS(files map[string]string, p *v1.Pod, c *v1.Container, n *Node) {
	if !n.MemoryQoS && n.MemoryThrottling == 0 {
		return
	}
	request, limit := pod.Value(c.Resources.Requests[v1.ResourceMemory]), pod.Value(c.Resources.Limits[v1.ResourceMemory])
	if n.MemoryQoS && request > 0 {
		files[protectionFile(pod.QOSClass(p))] = strconv.FormatInt(request, 10)
	}
	if request == limit || n.MemoryThrottling == 0 {
		return
	}
	if limit == 0 {
		limit = n.MemoryUnreserved
	}
	if high := memoryHigh(request, limit, n.MemoryThrottling); high > request {
		files[fileMemoryHigh] = strconv.FormatInt(high, 10)
	}
}

// MemoryQoSFiles returns the cgroup files of an existing container, to update its cgroup
// after a resize. It returns all of the files. The config of a new container has only those
// that differ from the kernel's defaults. nil means that nothing is to be written.
func MemoryQoSFiles(p *v1.Pod, c *v1.Container, n *Node) map[string]string {
	if !n.MemoryQoS && n.MemoryThrottling == 0 {
		return nil
	}
	files := map[string]string{fileMemoryMin: "0", fileMemoryLow: "0", fileMemoryHigh: "max"}
	setMemoryQoS(files, p, c, n)
	return files
}

// memoryHigh returns memory.high in bytes, rounded down to whole pages. It returns 0 if the
// value does not fit into an int64.
func memoryHigh(request, limit int64, factor float64) int64 {
	page := float64(os.Getpagesize())
	bytes := float64(request) + (float64(limit)-float64(request))*factor
	if bytes >= math.MaxInt64 {
		return 0
	}
	return int64(math.Floor(bytes/page)) * int64(page)
}

// swapLimit returns memory.swap.max in bytes. With Node.LimitedSwap, a container of a
// Burstable pod that is not critical gets the share of the swap capacity that its request has
// of the memory capacity (KEP-2400, LimitedSwap), unless its request equals its limit. All
// others get 0. Swap in memory, such as zram, is not treated differently.
func swapLimit(p *v1.Pod, c *v1.Container, n *Node) int64 {
	request, limit := pod.Value(c.Resources.Requests[v1.ResourceMemory]), pod.Value(c.Resources.Limits[v1.ResourceMemory])
	if !n.LimitedSwap || pod.IsCritical(p) || pod.QOSClass(p) != v1.PodQOSBurstable || request == limit {
		return 0
	}
	if n.MemoryCapacity <= 0 || request > n.MemoryCapacity {
		return 0
	}
	return int64(float64(request) / float64(n.MemoryCapacity) * float64(n.SwapCapacity))
}
