package cgroups

import "math"

// Number is a value of the kernel, if it is known. An older kernel, a cgroup without the
// controller, and the root may lack the file or the line that has it.
type Number struct {
	Value uint64
	Known bool
}

// NoLimit is the Value of a limit that the kernel shows as "max".
const NoLimit uint64 = math.MaxUint64

// Parts selects the files that are read. Opening files is most of the cost, so select
// only what is used.
type Parts uint8

// Each part is one to three files of a cgroup.
const (
	PartCPU       Parts = 1 << iota // cpu.stat
	PartMemory                      // memory.current, memory.stat
	PartMemoryMax                   // memory.max
	PartSwap                        // memory.swap.current, memory.swap.max
	PartEvents                      // memory.events
	PartPids                        // pids.current
	PartIO                          // io.stat
	PartPressure                    // cpu.pressure, memory.pressure, io.pressure
)

// Stats are the stats of one cgroup with all below it, from cgroup-v2.rst of the
// kernel's documentation.
type Stats struct {
	CPU    CPUStats
	Memory MemoryStats
	Events MemoryEvents
	// Pids is the number of tasks (threads, not processes).
	Pids Number
	IO   IOStats

	CPUPressure    Pressure
	MemoryPressure Pressure
	IOPressure     Pressure
}

// CPUStats are from cpu.stat. Times are in microseconds. Without the CPU controller only
// the first three are known.
type CPUStats struct {
	Usage, User, System Number
	// Periods counts the periods in which a limit applied, ThrottledPeriods those in
	// which it was reached. Throttled is the time for which tasks were throttled.
	Periods, ThrottledPeriods, Throttled Number
}

// MemoryStats are from the memory files, in bytes except for the faults.
type MemoryStats struct {
	Current, Max         Number
	SwapCurrent, SwapMax Number

	Anon, File, Kernel       Number
	SlabReclaimable          Number
	ActiveFile, InactiveFile Number
	// Faults counts page faults, MajorFaults those that needed a read from a disk.
	Faults, MajorFaults Number
}

// Usage returns all memory charged to the cgroup. The root has no memory.current: its
// usage is the anonymous and the file memory, as in runc's library and in cAdvisor
// (opencontainers/cgroups fs2/memory.go).
func (m *MemoryStats) Usage() Number {
	switch {
	case m.Current.Known:
		return m.Current
	case m.Anon.Known && m.File.Known && m.Anon.Value <= math.MaxUint64-m.File.Value:
		return Number{m.Anon.Value + m.File.Value, true}
	default:
		return Number{}
	}
}

// WorkingSet returns Usage without the file pages that were not used recently, at least
// 0. The kubelet evicts by it (cAdvisor's setMemoryStats).
func (m *MemoryStats) WorkingSet() Number {
	usage := m.Usage()
	if !usage.Known || !m.InactiveFile.Known {
		return Number{}
	}
	return Number{usage.Value - min(usage.Value, m.InactiveFile.Value), true}
}

// MemoryEvents are the counters of memory.events since the cgroup was created.
type MemoryEvents struct {
	// OOM counts how often the limit of the cgroup, or of one below it, could not be
	// kept. It does not count that the system runs out of memory. OOMKill counts the
	// processes of the cgroup that were killed because the cgroup or the whole system
	// ran out of memory, and OOMGroupKill how often a whole cgroup was killed
	// (memory.oom.group; since Linux 5.17).
	OOM, OOMKill, OOMGroupKill Number
}

// IOStats are the sums over all devices of io.stat. I/O through a stacked device (dm,
// md) is counted in each layer.
type IOStats struct {
	ReadBytes, WrittenBytes Number
	Reads, Writes           Number
}

// Pressure is how long tasks waited for one resource: some of them, or all of them at
// once (Full).
type Pressure struct {
	Some, Full Stall
}

// Stall is one line of a pressure file (Documentation/accounting/psi.rst).
type Stall struct {
	Known bool
	// Avg10, Avg60 and Avg300 are percent of the last 10, 60 and 300 seconds.
	Avg10, Avg60, Avg300 float64
	// Total is microseconds since the cgroup was created.
	Total uint64
}
