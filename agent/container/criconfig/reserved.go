package criconfig

import (
	"strconv"

	v1 "k8s.io/api/core/v1"

	"github.com/tinylet/tinylet/cgroups"
)

// ReservedResources returns the limits of a cgroup of system or Kubernetes
// daemons from what is reserved for them, or only its CPU weight if weightAlone
// (getCgroupConfigInternal in pkg/kubelet/cm/node_container_manager_linux.go).
// With Node.MemoryQoS the cgroup's memory.min protects the memory, too.
func ReservedResources(reserved v1.ResourceList, weightAlone bool, n *Node) cgroups.Resources {
	var r cgroups.Resources
	if cpu, ok := reserved[v1.ResourceCPU]; ok {
		r.CPUWeight = cpuWeight(shares(milli(cpu)))
	}
	if weightAlone {
		return r
	}
	if pids, ok := reserved[resourcePIDs]; ok {
		r.PidsMax = whole(pids)
	}
	if memory, ok := reserved[v1.ResourceMemory]; ok {
		r.MemoryMax = whole(memory)
		if n.MemoryQoS {
			r.Unified = map[string]string{fileMemoryMin: strconv.FormatInt(r.MemoryMax, 10)}
		}
	}
	return r
}
