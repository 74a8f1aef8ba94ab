package policy

import (
	"fmt"
	"maps"
	"slices"
	"strconv"

	"k8s.io/apimachinery/pkg/api/resource"
)

// Options are the supported cpuManagerPolicyOptions.
type Options struct {
	// FullPhysicalCPUs is full-pcpus-only: containers get whole cores.
	FullPhysicalCPUs bool
}

const fullPhysicalCPUs = "full-pcpus-only"

// ParseOptions parses cpuManagerPolicyOptions. It rejects options that are not
// implemented, even if they are false.
func ParseOptions(given map[string]string) (Options, error) {
	var o Options
	for _, name := range slices.Sorted(maps.Keys(given)) {
		if name != fullPhysicalCPUs {
			return Options{}, fmt.Errorf("cpuManagerPolicyOptions: option %q is not supported, only %s", name, fullPhysicalCPUs)
		}
		on, err := strconv.ParseBool(given[name])
		if err != nil {
			return Options{}, fmt.Errorf("cpuManagerPolicyOptions: %s is %q: it must be true or false", name, given[name])
		}
		o.FullPhysicalCPUs = on
	}
	return o, nil
}

// Reserve returns the CPUs that are never assigned exclusively: reservedSystemCPUs if
// not empty, else as many as the sum of kubeReserved and systemReserved, rounded up,
// chosen as for a container (getReservedCPUs in cmd/kubelet/app/server.go, NewManager
// in pkg/kubelet/cm/cpumanager/cpu_manager.go).
//
// If reservedSystemCPUs is set, the caller must not account for the cpu of
// kubeReserved and systemReserved: the number of reservedSystemCPUs replaces it.
func Reserve(t Topology, reservedSystemCPUs Set, kube, system resource.Quantity) (Set, error) {
	cores, err := t.cores()
	if err != nil {
		return Set{}, fmt.Errorf("reserve CPUs: %w", err)
	}
	if !reservedSystemCPUs.IsEmpty() {
		if missing := reservedSystemCPUs.Difference(t.CPUs); !missing.IsEmpty() {
			return Set{}, fmt.Errorf("reservedSystemCPUs is %s, but CPU %s is not online: online CPUs are %s", reservedSystemCPUs, missing, t.CPUs)
		}
		return reservedSystemCPUs, nil
	}
	sum := kube.DeepCopy()
	sum.Add(system)
	if sum.Sign() <= 0 {
		return Set{}, fmt.Errorf("cpuManagerPolicy static requires CPUs reserved for non-exclusive workloads: set reservedSystemCPUs, or cpu in kubeReserved or systemReserved")
	}
	if sum.CmpInt64(int64(t.CPUs.Size())) > 0 {
		return Set{}, fmt.Errorf("kubeReserved and systemReserved sum to %s CPUs, more than the %d online CPUs (%s): reserve less", sum.String(), t.CPUs.Size(), t.CPUs)
	}
	// Value rounds up.
	return pickCPUs(cores, t.CPUs, int(sum.Value())), nil
}
