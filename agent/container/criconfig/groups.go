package criconfig

import (
	"strconv"

	v1 "k8s.io/api/core/v1"

	"github.com/tinylet/tinylet/agent/pod"
	"github.com/tinylet/tinylet/cgroups"
)

// resourcePIDs is how package node and the kubelet name process IDs in a list
// of resources (pkg/kubelet/stats/pidlimit).
const resourcePIDs v1.ResourceName = "pid"

// Group is a cgroup above those of the pods, with what it is to have.
type Group struct {
	Path      string
	Resources cgroups.Resources
}

// Groups are the cgroups above those of the given pods, the outer first. All
// pods together get what the node has for them; BestEffort the least weight
// that there is, Burstable what its pods ask for together. Huge pages are
// bounded at the pods (pkg/kubelet/cm: node_container_manager_linux.go and
// qos_container_manager_linux.go).
//
// With Node.MemoryQoS what protects pods' memory is handed down to them: a
// group protects no more than the one above it does.
func Groups(pods []*v1.Pod, n *Node) []Group {
	all := Group{Path: QoSCgroup(v1.PodQOSGuaranteed, n), Resources: nodeResources(n)}
	burstable := Group{Path: QoSCgroup(v1.PodQOSBurstable, n)}
	bestEffort := Group{Path: QoSCgroup(v1.PodQOSBestEffort, n)}

	cpu, memory := asked(pods)
	burstable.Resources.CPUWeight = cpuWeight(shares(cpu))
	bestEffort.Resources.CPUWeight = cpuWeight(minShares)
	if !n.MemoryQoS {
		memory = sums{} // which takes back what may have been there
	}
	for _, g := range []*Group{&all, &burstable, &bestEffort} {
		g.Resources.Unified = map[string]string{}
		limitHugePages(g.Resources.Unified, nil, hugePagesUnbounded, n)
	}
	if n.MemoryAccounting {
		all.Resources.Unified[fileMemoryMin] = strconv.FormatInt(plus(memory.guaranteed, memory.burstable), 10)
		burstable.Resources.Unified[fileMemoryLow] = strconv.FormatInt(memory.burstable, 10)
	}
	return []Group{all, burstable, bestEffort}
}

// sums are bytes of memory that pods ask for, by their class.
type sums struct{ guaranteed, burstable int64 }

// asked is what pods ask for: thousandths of CPUs the Burstable ones, memory
// those and the Guaranteed ones.
func asked(pods []*v1.Pod) (cpu int64, memory sums) {
	for _, p := range pods {
		switch requests := pod.Requests(p); pod.QoS(p) {
		case v1.PodQOSBurstable:
			cpu = min(cpu+milli(requests[v1.ResourceCPU]), maxMilli)
			memory.burstable = plus(memory.burstable, whole(requests[v1.ResourceMemory]))
		case v1.PodQOSGuaranteed:
			memory.guaranteed = plus(memory.guaranteed, whole(requests[v1.ResourceMemory]))
		case v1.PodQOSBestEffort:
		}
	}
	return cpu, memory
}

// nodeResources are what all pods together may use. What is not known has no
// limit.
func nodeResources(n *Node) cgroups.Resources {
	var r cgroups.Resources
	if cpu, ok := n.Enforced[v1.ResourceCPU]; ok {
		r.CPUWeight = cpuWeight(shares(milli(cpu)))
	}
	if memory, ok := n.Enforced[v1.ResourceMemory]; ok && n.MemoryAccounting && memory.Sign() > 0 {
		r.MemoryMax = whole(memory)
	}
	if pids, ok := n.Enforced[resourcePIDs]; ok && pids.Sign() > 0 {
		r.PidsMax = whole(pids)
	}
	return r
}
