package policy

import (
	"math"

	v1 "k8s.io/api/core/v1"

	"github.com/tinylet/tinylet/agent/pod"
)

// Asked is how many CPUs the container is to have alone; 0 for the shared
// pool (guaranteedCPUs in pkg/kubelet/cm/cpumanager/policy_static.go). It does
// not look for the container in the pod; that of an ephemeral one is 0, since
// such have no resources.
func Asked(p *v1.Pod, c *v1.Container) int64 {
	if p.Spec.Resources != nil || pod.QoS(p) != v1.PodQOSGuaranteed {
		return 0
	}
	// In a Guaranteed pod a request that is not written is the limit.
	cpu, ok := c.Resources.Requests[v1.ResourceCPU]
	if !ok {
		cpu = c.Resources.Limits[v1.ResourceCPU]
	}
	if cpu.CmpInt64(tooMuch) > 0 {
		return tooMuch
	}
	if cpu.MilliValue()%1000 != 0 {
		return 0
	}
	return cpu.Value()
}

// tooMuch is more CPUs than there are, and the most whose thousandths can be
// counted.
const tooMuch = math.MaxInt64 / 1000

// beside says whether two containers of a pod can run at one time: all but an
// ordinary init container with another one, with a main one, and with a
// sidecar that comes after it. A name that the spec has not counts as main.
func beside(s *v1.PodSpec, a, b string) bool {
	at, aOrdinary := place(s, a)
	bt, bOrdinary := place(s, b)
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

// place is where the container stands among the init containers, after all of
// them if it is none, and whether it is an ordinary one.
func place(s *v1.PodSpec, name string) (at int, ordinary bool) {
	for i := range s.InitContainers {
		if c := &s.InitContainers[i]; c.Name == name {
			return i, !pod.IsRestartableInit(c)
		}
	}
	return len(s.InitContainers), false
}
