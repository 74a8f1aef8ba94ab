package criconfig

import (
	"cmp"
	"strconv"
	"time"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/tinylet/tinylet/agent/pod"
)

func (n *Node) quotaPeriod() int64 {
	return cmp.Or(int64(n.CPUCFSQuotaPeriod/time.Microsecond), pod.DefaultPeriod)
}

// linuxResources returns the resources of one sandbox or container
// (calculateLinuxResources in pkg/kubelet/kuberuntime). Without a CPU request
// the CPU limit is the request.
func linuxResources(requests, limits v1.ResourceList, n *Node) *runtimeapi.LinuxContainerResources {
	cpuLimit := pod.MilliValue(limits[v1.ResourceCPU])
	cpuRequest := cpuLimit
	if q, ok := requests[v1.ResourceCPU]; ok {
		cpuRequest = pod.MilliValue(q)
	}
	r := &runtimeapi.LinuxContainerResources{
		CpuShares:          pod.CPUShares(cpuRequest),
		MemoryLimitInBytes: pod.Value(limits[v1.ResourceMemory]),
	}
	if n.CPUCFSQuota {
		r.CpuPeriod = n.quotaPeriod()
		r.CpuQuota = pod.CPUQuota(cpuLimit, r.CpuPeriod)
	}
	if !n.SingleProcessOOMKill {
		r.Unified = map[string]string{"memory.oom.group": "1"}
	}
	return r
}

// sandboxResources returns the pod's resources without its overhead, for
// runtimes that size a virtual machine by them.
func sandboxResources(p *v1.Pod, n *Node) *runtimeapi.LinuxContainerResources {
	bare := containersOnly(p)
	bare.Spec.Resources = p.Spec.Resources
	return linuxResources(pod.Requests(bare), pod.Limits(bare), n)
}

// containersOnly returns the containers and init containers of the pod as a pod, without
// pod-level resources and overhead. The pod shares its containers with p.
func containersOnly(p *v1.Pod) *v1.Pod {
	return &v1.Pod{Spec: v1.PodSpec{InitContainers: p.Spec.InitContainers, Containers: p.Spec.Containers}}
}

// overheadResources returns the pod's overhead, as both request and limit.
func overheadResources(p *v1.Pod, n *Node) *runtimeapi.LinuxContainerResources {
	if p.Spec.Overhead == nil {
		return &runtimeapi.LinuxContainerResources{}
	}
	return linuxResources(p.Spec.Overhead, p.Spec.Overhead, n)
}

// containerResources returns the container's resources. The pod-level limit replaces a limit
// that it does not set (generateLinuxContainerResources in pkg/kubelet/kuberuntime).
func containerResources(p *v1.Pod, c *v1.Container, n *Node) *runtimeapi.LinuxContainerResources {
	out := linuxResources(c.Resources.Requests, effectiveLimits(p, c), n)
	out.OomScoreAdj = oomScoreAdj(p, c, n.MemoryCapacity)
	out.HugepageLimits = hugePageLimits(p, c, n)
	if out.Unified == nil {
		out.Unified = map[string]string{}
	}
	if n.SwapAccounting {
		out.Unified["memory.swap.max"] = strconv.FormatInt(swapLimit(p, c, n), 10)
	}
	setMemoryQoS(out.Unified, p, c, n)
	return out
}

// UpdateResources returns the resources for an update of an existing container: only those
// that can be resized, and oom_score_adj, which depends on them. The others stay unchanged.
// Some runtimes would append the huge page limits a second time.
func UpdateResources(p *v1.Pod, c *v1.Container, n *Node) *runtimeapi.LinuxContainerResources {
	out := linuxResources(c.Resources.Requests, effectiveLimits(p, c), n)
	out.Unified = nil
	out.OomScoreAdj = oomScoreAdj(p, c, n.MemoryCapacity)
	return out
}

// effectiveLimits returns the container's limits of CPU and memory. The pod-level
// limits replace those that it does not set.
func effectiveLimits(p *v1.Pod, c *v1.Container) v1.ResourceList {
	own := pod.PodLevelResources(p)
	if own == nil {
		return c.Resources.Limits
	}
	out := v1.ResourceList{}
	for _, name := range []v1.ResourceName{v1.ResourceCPU, v1.ResourceMemory} {
		out[name] = own.Limits[name]
		if pod.Value(c.Resources.Limits[name]) > 0 {
			out[name] = c.Resources.Limits[name]
		}
	}
	return out
}

// UsableMemory returns how much memory in bytes a pod can use: the lower of its own limit and
// the node's allocatable memory (calculateEmptyDirMemorySize in pkg/volume/emptydir). 0 means
// that neither is known.
func UsableMemory(p *v1.Pod, allocatable v1.ResourceList) int64 {
	own, all := PodResources(p, &Node{}).MemoryMax, allocatable.Memory().Value()
	if own <= 0 || all > 0 && all < own {
		return all
	}
	return own
}
