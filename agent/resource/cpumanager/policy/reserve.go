package policy

import (
	"fmt"

	"k8s.io/apimachinery/pkg/api/resource"
)

// Reserve is which CPUs no container gets alone: those of reservedSystemCPUs,
// where that names any, else as many as kubeReserved and systemReserved come
// to, rounded up, taken as for a container (getReservedCPUs in
// cmd/kubelet/app/server.go, NewManager in
// pkg/kubelet/cm/cpumanager/cpu_manager.go).
//
// The caller must not count the cpu of kubeReserved and systemReserved where
// reservedSystemCPUs is set: their number takes the place of it.
func Reserve(t Topology, reservedSystemCPUs Set, kube, system resource.Quantity) (Set, error) {
	cores, err := t.cores()
	if err != nil {
		return Set{}, fmt.Errorf("reserve CPUs: %w", err)
	}
	if !reservedSystemCPUs.IsEmpty() {
		if missing := reservedSystemCPUs.Difference(t.CPUs); !missing.IsEmpty() {
			return Set{}, fmt.Errorf("reservedSystemCPUs is %s, but CPU %s is not online: the machine has %s", reservedSystemCPUs, missing, t.CPUs)
		}
		return reservedSystemCPUs, nil
	}
	sum := kube.DeepCopy()
	sum.Add(system)
	if sum.Sign() <= 0 {
		return Set{}, fmt.Errorf("cpuManagerPolicy static needs CPUs for all that is not alone on its own: set reservedSystemCPUs, or cpu in kubeReserved or systemReserved")
	}
	if sum.CmpInt64(int64(t.CPUs.Len())) > 0 {
		return Set{}, fmt.Errorf("kubeReserved and systemReserved take %s CPUs of the %d that are online (%s): reserve less", sum.String(), t.CPUs.Len(), t.CPUs)
	}
	// Value rounds up.
	return take(cores, t.CPUs, int(sum.Value())), nil
}
