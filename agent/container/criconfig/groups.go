package criconfig

import (
	"strconv"

	v1 "k8s.io/api/core/v1"

	"github.com/tinylet/tinylet/agent/pod"
	"github.com/tinylet/tinylet/cgroups"
)

// resourcePIDs is the name of process IDs in a resource list, as in package
// node and in the kubelet (pkg/kubelet/stats/pidlimit).
const resourcePIDs v1.ResourceName = "pid"

// Group is a cgroup above those of the pods, with its desired resources.
type Group struct {
	Path      string
	Resources cgroups.Resources
}

// Groups returns the cgroups above those of the given pods, the outer first.
// The cgroup of all pods gets Node.Enforced. BestEffort gets the least CPU
// weight, Burstable the sum of its pods' requests. Huge pages are limited at
// the pods (pkg/kubelet/cm: node_container_manager_linux.go and
// qos_container_manager_linux.go).
//
// With Node.MemoryQoS these cgroups also protect the memory requests of the
// pods, because a cgroup protects no more than its parent does.
func Groups(pods []*v1.Pod, n *Node) []Group {
	all := Group{Path: QoSCgroup(v1.PodQOSGuaranteed, n), Resources: nodeResources(n)}
	burstable := Group{Path: QoSCgroup(v1.PodQOSBurstable, n)}
	bestEffort := Group{Path: QoSCgroup(v1.PodQOSBestEffort, n)}

	cpu, memory := asked(pods)
	burstable.Resources.CPUWeight = cpuWeight(shares(cpu))
	bestEffort.Resources.CPUWeight = cpuWeight(minShares)
	if !n.MemoryQoS {
		memory = sums{} // resets an earlier protection
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

// sums are the memory requests of pods by QoS class, in bytes.
type sums struct{ guaranteed, burstable int64 }

// asked returns the sums of the pods' requests: CPU of the Burstable pods, in
// thousandths, and memory of the Burstable and the Guaranteed pods.
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

// nodeResources returns the limits of all pods together. A resource that is not
// in n.Enforced has no limit.
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
