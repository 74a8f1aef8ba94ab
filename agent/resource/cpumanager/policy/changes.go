package policy

import "k8s.io/apimachinery/pkg/types"

// Container is a container with its actual or desired CPUs.
type Container struct {
	PodUID types.UID
	Name   string
	// CPUs is its cpuset.cpus. It is empty if that is empty, as for a container that
	// was started under another policy.
	CPUs Set
}

// Changes returns the containers whose CPUs differ from the desired ones, with the
// desired CPUs: after an allocation or a release, all containers of the shared pool.
// They are in the order in which to update them: first those of the shared pool,
// which must leave a CPU before a container has it exclusively. running must hold all
// running containers, including ephemeral ones, which a kubelet omits (reconcileState
// in pkg/kubelet/cm/cpumanager/cpu_manager.go).
func (p *Policy) Changes(running []Container) []Container {
	pool := p.SharedPool()
	var shared, alone []Container
	for _, c := range running {
		own, has := p.Exclusive(c.PodUID, c.Name)
		switch {
		case has && own != c.CPUs:
			alone = append(alone, Container{c.PodUID, c.Name, own})
		case !has && pool != c.CPUs:
			shared = append(shared, Container{c.PodUID, c.Name, pool})
		}
	}
	return append(shared, alone...)
}
