package criconfig

import (
	"strconv"

	v1 "k8s.io/api/core/v1"

	"github.com/tinylet/tinylet/agent/pod"
	"github.com/tinylet/tinylet/cgroups"
)

// ReservedResources returns the limits of a cgroup of system or Kubernetes
// daemons from what is reserved for them, or only its CPU weight if weightAlone
// (getCgroupConfigInternal in pkg/kubelet/cm/node_container_manager_linux.go).
// With Node.MemoryQoS the cgroup's memory.min also protects the memory.
func ReservedResources(reserved v1.ResourceList, weightAlone bool, n *Node) cgroups.Resources {
	r := limitsOf(reserved)
	if weightAlone {
		return cgroups.Resources{CPUWeight: r.CPUWeight}
	}
	if _, ok := reserved[v1.ResourceMemory]; ok && n.MemoryQoS {
		r.Unified = map[string]string{fileMemoryMin: strconv.FormatInt(r.MemoryMax, 10)}
	}
	return r
}

// limitsOf returns the CPU weight of a list of resources, and its memory and process IDs as
// limits. A resource that is not in list has no limit.
func limitsOf(list v1.ResourceList) cgroups.Resources {
	r := cgroups.Resources{MemoryMax: pod.Value(list[v1.ResourceMemory]), PidsMax: pod.Value(list[resourcePIDs])}
	if cpu, ok := list[v1.ResourceCPU]; ok {
		r.CPUWeight = cpuWeight(pod.CPUShares(pod.MilliValue(cpu)))
	}
	return r
}

// resourcePIDs is the name of process IDs in a resource list, as ResourcePIDs in package
// machine and in the kubelet (pkg/kubelet/stats/pidlimit).
const resourcePIDs v1.ResourceName = "pid"

// Cgroup is a cgroup above those of the pods, with its desired resources.
type Cgroup struct {
	Path      string
	Resources cgroups.Resources
}

// ParentCgroups returns the cgroups above those of the given pods, the outer first. The cgroup
// of all pods gets Node.EnforcedAllocatable. The CPU weight of Burstable is that of the sum of
// its pods' requests, the one of BestEffort the smallest. Huge pages are limited in the pods'
// cgroups (pkg/kubelet/cm: node_container_manager_linux.go and
// qos_container_manager_linux.go).
//
// With Node.MemoryQoS these cgroups also protect the memory requests of the
// pods, because a cgroup protects no more than its parent does.
func ParentCgroups(pods []*v1.Pod, n *Node) []Cgroup {
	all := Cgroup{Path: QoSCgroup(v1.PodQOSGuaranteed, n), Resources: limitsOf(n.EnforcedAllocatable)}
	if !n.MemoryAccounting {
		all.Resources.MemoryMax = 0
	}
	burstable := Cgroup{Path: QoSCgroup(v1.PodQOSBurstable, n)}
	bestEffort := Cgroup{Path: QoSCgroup(v1.PodQOSBestEffort, n)}

	cpu, guaranteedMemory, burstableMemory := sumRequests(pods)
	burstable.Resources.CPUWeight = cpuWeight(pod.CPUShares(cpu))
	bestEffort.Resources.CPUWeight = cpuWeight(pod.MinShares)
	if !n.MemoryQoS {
		guaranteedMemory, burstableMemory = 0, 0 // resets an earlier protection
	}
	for _, g := range []*Cgroup{&all, &burstable, &bestEffort} {
		g.Resources.Unified = map[string]string{}
		limitHugePages(g.Resources.Unified, nil, hugePagesUnbounded, n)
	}
	if n.MemoryAccounting {
		all.Resources.Unified[fileMemoryMin] = strconv.FormatInt(pod.AddSaturating(guaranteedMemory, burstableMemory), 10)
		burstable.Resources.Unified[fileMemoryLow] = strconv.FormatInt(burstableMemory, 10)
	}
	return []Cgroup{all, burstable, bestEffort}
}

// sumRequests returns the sums of the pods' requests: CPU of the Burstable pods, in
// thousandths, and memory of the Guaranteed and the Burstable pods, in bytes.
func sumRequests(pods []*v1.Pod) (cpu, guaranteedMemory, burstableMemory int64) {
	for _, p := range pods {
		switch requests := pod.Requests(p); pod.QOSClass(p) {
		case v1.PodQOSBurstable:
			cpu = min(cpu+pod.MilliValue(requests[v1.ResourceCPU]), pod.MaxMilli)
			burstableMemory = pod.AddSaturating(burstableMemory, pod.Value(requests[v1.ResourceMemory]))
		case v1.PodQOSGuaranteed:
			guaranteedMemory = pod.AddSaturating(guaranteedMemory, pod.Value(requests[v1.ResourceMemory]))
		case v1.PodQOSBestEffort:
		}
	}
	return cpu, guaranteedMemory, burstableMemory
}
