package policy

import (
	"math"

	v1 "k8s.io/api/core/v1"

	"github.com/tinylet/tinylet/agent/pod"
)

// RequestedCPUs returns the number of exclusive CPUs that the container requests; 0 means the
// shared pool (guaranteedCPUs in pkg/kubelet/cm/cpumanager/policy_static.go). It does
// not check that the container belongs to the pod. It returns 0 for ephemeral
// containers, since they have no resources.
func RequestedCPUs(p *v1.Pod, c *v1.Container) int64 {
	if p.Spec.Resources != nil || pod.QOSClass(p) != v1.PodQOSGuaranteed {
		return 0
	}
	// In a Guaranteed pod a missing request equals the limit.
	cpu, ok := c.Resources.Requests[v1.ResourceCPU]
	if !ok {
		cpu = c.Resources.Limits[v1.ResourceCPU]
	}
	if cpu.CmpInt64(maxRequest) > 0 {
		return maxRequest
	}
	if cpu.MilliValue()%1000 != 0 {
		return 0
	}
	return cpu.Value()
}

// maxRequest is more CPUs than any machine has, and the largest number whose millicores
// fit into an int64.
const maxRequest = math.MaxInt64 / 1000

// canOverlap reports whether two containers of a pod can run at the same time. Only a
// non-restartable init container cannot run together with another one, with a main
// container, or with a sidecar that follows it. A name that is missing in the spec
// counts as a main container.
func canOverlap(s *v1.PodSpec, a, b string) bool {
	at, aOrdinary := initPosition(s, a)
	bt, bOrdinary := initPosition(s, b)
	switch {
	case aOrdinary && bOrdinary:
		return false
	case aOrdinary:
		return bt < at
	case bOrdinary:
		return at < bt
	}
	return true
}

// initPosition returns the index of the container among the init containers, or their number
// if it is none, and whether it is a non-restartable one.
func initPosition(s *v1.PodSpec, name string) (at int, ordinary bool) {
	for i := range s.InitContainers {
		if c := &s.InitContainers[i]; c.Name == name {
			return i, !pod.IsRestartableInit(c)
		}
	}
	return len(s.InitContainers), false
}
