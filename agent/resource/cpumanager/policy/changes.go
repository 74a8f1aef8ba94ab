package policy

import "k8s.io/apimachinery/pkg/types"

// Container is a container and CPUs: those it runs on, or those it is to.
type Container struct {
	PodUID types.UID
	Name   string
	// CPUs is its cpuset.cpus; empty where that is empty, as with a container
	// that was started under another policy.
	CPUs Set
}

// Changes are the containers that run on other CPUs than they are to, with
// those that they are to run on: after an allocation or a release all of the
// shared pool. They come in the order in which to change them: first those of
// the shared pool, which must be off a CPU before somebody has it alone. The
// caller names all that run, ephemeral ones too; a kubelet forgets these
// (reconcileState in pkg/kubelet/cm/cpumanager/cpu_manager.go).
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
