package machine

import (
	"maps"
	"math"
	"path/filepath"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// ResourcePIDs is the resource name of process IDs in a reservation
// (pkg/kubelet/stats/pidlimit).
const ResourcePIDs v1.ResourceName = "pid"

// EnforcedAllocatable returns the limits of all pods together: the capacity minus the
// reservations, process IDs included. The eviction thresholds are not subtracted,
// so that eviction acts before the limit is reached
// (getNodeAllocatableInternalAbsolute in
// pkg/kubelet/cm/node_container_manager_linux.go). It fails on a quantity that
// cannot be parsed.
func EnforcedAllocatable(capacity v1.ResourceList, r Reserved, roots Roots) (v1.ResourceList, error) {
	all := v1.ResourceList{}
	maps.Copy(all, capacity)
	if n := maxTasks(roots); n > 0 {
		all[ResourcePIDs] = *resource.NewQuantity(n, resource.DecimalSI)
	}
	return reserve(all, r)
}

// Swap returns the size of all swap areas in bytes, or 0 if /proc does not report
// it.
func Swap(r Roots) int64 {
	m, _ := readMeminfo(r)
	return int64(m.swapTotal)
}

// maxTasks returns how many tasks may exist, or 0 if that is unknown.
func maxTasks(r Roots) int64 {
	n := min(parseLimit(readSmall(filepath.Join(r.proc(), "sys/kernel/pid_max"))), parseLimit(readSmall(filepath.Join(r.proc(), "sys/kernel/threads-max"))))
	if n == math.MaxInt64 {
		return 0
	}
	return n
}
