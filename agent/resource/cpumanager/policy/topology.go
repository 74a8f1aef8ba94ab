package policy

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"k8s.io/utils/cpuset"
)

// Topology describes the machine's CPUs: which are online, and which threads share a
// core.
type Topology struct {
	// CPUs are the online CPUs (/sys/devices/system/cpu/online).
	CPUs Set
	// Core maps each CPU to its core, identified by any unique number: the lowest CPU
	// in topology/thread_siblings_list is unique; core_id is not on machines with
	// clusters. Nil means that each CPU is a core.
	Core map[int]int
}

// cores returns the CPUs of each core, sorted by their lowest CPU. It returns an
// error if the topology is inconsistent.
func (t *Topology) cores() ([]Set, error) {
	if t.CPUs.IsEmpty() {
		return nil, errors.New("online CPUs are not known")
	}
	for cpu := range t.Core {
		if !t.CPUs.Contains(cpu) {
			return nil, fmt.Errorf("CPU %d has a core but is not in online CPUs %s", cpu, t.CPUs)
		}
	}
	var cores []Set
	at := map[int]int{}
	for _, cpu := range t.CPUs.List() {
		if len(t.Core) == 0 {
			cores = append(cores, cpuset.New(cpu))
			continue
		}
		core, known := t.Core[cpu]
		if !known {
			return nil, fmt.Errorf("the core of CPU %d is not known", cpu)
		}
		i, seen := at[core]
		if !seen {
			i = len(cores)
			at[core] = i
			cores = append(cores, Set{})
		}
		cores[i] = cores[i].Union(cpuset.New(cpu))
	}
	return cores, nil
}

// pickCPUs chooses n CPUs from free, which must have at least n: whole cores first, while
// at least a whole core is needed, then threads. In both cases the cores with the
// fewest free threads come first, then the lowest (takeByTopologyNUMAPacked in
// pkg/kubelet/cm/cpumanager/cpu_assignment.go, below one socket).
func pickCPUs(cores []Set, free Set, n int) Set {
	byRoom := slices.Clone(cores)
	order := func(a, b Set) int { return cmp.Compare(a.Intersection(free).Size(), b.Intersection(free).Size()) }
	slices.SortStableFunc(byRoom, order)
	var taken Set
	for _, core := range byRoom {
		if size := core.Size(); core.IsSubsetOf(free) && size <= n {
			taken = taken.Union(core)
			n -= size
		}
	}
	free = free.Difference(taken)
	slices.SortStableFunc(byRoom, order)
	for _, core := range byRoom {
		for _, cpu := range core.Intersection(free).List() {
			if n == 0 {
				return taken
			}
			taken = taken.Union(cpuset.New(cpu))
			n--
		}
	}
	return taken
}
