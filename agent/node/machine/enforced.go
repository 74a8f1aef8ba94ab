package machine

import (
	"maps"
	"math"
	"path/filepath"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// ResourcePIDs is how a reserve names process IDs (pkg/kubelet/stats/pidlimit).
const ResourcePIDs v1.ResourceName = "pid"

// Enforced is what all pods together are held to: the capacity without what is
// reserved, process IDs included. What eviction keeps free is not taken off,
// so that it comes first (getNodeAllocatableInternalAbsolute in
// pkg/kubelet/cm/node_container_manager_linux.go). It fails on a quantity that
// cannot be read.
func Enforced(capacity v1.ResourceList, r Reserved, roots Roots) (v1.ResourceList, error) {
	all := v1.ResourceList{}
	maps.Copy(all, capacity)
	if n := maxTasks(roots); n > 0 {
		all[ResourcePIDs] = *resource.NewQuantity(n, resource.DecimalSI)
	}
	return reserve(all, r)
}

// Swap is the size of all swap space in bytes, or 0 if /proc does not tell.
func Swap(r Roots) int64 {
	m, _ := readMeminfo(r)
	return int64(m.swapTotal)
}

// maxTasks is how many tasks may exist, or 0 where that is not known.
func maxTasks(r Roots) int64 {
	n := min(most(readSmall(filepath.Join(r.proc(), "sys/kernel/pid_max"))), most(readSmall(filepath.Join(r.proc(), "sys/kernel/threads-max"))))
	if n == math.MaxInt64 {
		return 0
	}
	return n
}
