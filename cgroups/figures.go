package cgroups

import "math"

// Figure is a number of the kernel's where it is known: an older kernel, a
// controller that is off or the root may lack the file or the line that it
// stands in.
type Figure struct {
	Value uint64
	Known bool
}

// NoLimit is the Value of a limit that the kernel shows as "max".
const NoLimit uint64 = math.MaxUint64

// Parts says which of a group's files are read. Nearly all that reading costs
// is opening files, so ask only for what is used.
type Parts uint8

// Every Part is one to three files of a group.
const (
	PartCPU       Parts = 1 << iota // cpu.stat
	PartMemory                      // memory.current, memory.stat
	PartMemoryMax                   // memory.max
	PartSwap                        // memory.swap.current, memory.swap.max
	PartEvents                      // memory.events
	PartPids                        // pids.current
	PartIO                          // io.stat
	PartPressure                    // cpu.pressure, memory.pressure, io.pressure

	AllParts = PartCPU | PartMemory | PartMemoryMax | PartSwap | PartEvents | PartPids | PartIO | PartPressure
)

// Figures are what one group and all below it use, by cgroup-v2.rst of the
// kernel's documentation.
type Figures struct {
	CPU    CPUFigures
	Memory MemoryFigures
	Events EventFigures
	// Pids is the number of tasks (threads, not processes).
	Pids Figure
	IO   IOFigures

	CPUPressure    Pressure
	MemoryPressure Pressure
	IOPressure     Pressure
}

// CPUFigures are of cpu.stat; times are in microseconds. Without the CPU
// controller only the first three are known.
type CPUFigures struct {
	Usage, User, System Figure
	// Periods are those in which a limit was watched, ThrottledPeriods those
	// in which it was hit, Throttled the time that was waited for it.
	Periods, ThrottledPeriods, Throttled Figure
}

// MemoryFigures are of the memory files, in bytes but for the faults.
type MemoryFigures struct {
	Current, Max         Figure
	SwapCurrent, SwapMax Figure

	Anon, File, Kernel       Figure
	SlabReclaimable          Figure
	ActiveFile, InactiveFile Figure
	// Faults counts page faults, MajorFaults those that waited for a disk.
	Faults, MajorFaults Figure
}

// Usage is all memory charged to the group. The root has no memory.current;
// there it is the anonymous and the file memory, as runc's library and
// cAdvisor have it (opencontainers/cgroups fs2/memory.go).
func (m *MemoryFigures) Usage() Figure {
	switch {
	case m.Current.Known:
		return m.Current
	case m.Anon.Known && m.File.Known && m.Anon.Value <= math.MaxUint64-m.File.Value:
		return Figure{m.Anon.Value + m.File.Value, true}
	default:
		return Figure{}
	}
}

// WorkingSet is Usage without the file pages that nobody used lately, and
// not under 0: the measure by which the kubelet evicts (cAdvisor's
// setMemoryStats).
func (m *MemoryFigures) WorkingSet() Figure {
	usage := m.Usage()
	if !usage.Known || !m.InactiveFile.Known {
		return Figure{}
	}
	return Figure{usage.Value - min(usage.Value, m.InactiveFile.Value), true}
}

// EventFigures count what memory.events does since the group was made.
type EventFigures struct {
	// OOM is how often the limit of the group, or of one below it, could not be
	// kept: it stays as it is where the system runs out. OOMKill is how many
	// processes of the group were killed because memory ran out, of the group or
	// of the whole system, and OOMGroupKill how often a whole group was
	// (memory.oom.group; since Linux 5.17).
	OOM, OOMKill, OOMGroupKill Figure
}

// IOFigures are the sums over all devices of io.stat. What goes through a
// stacked device (dm, md) is in them for each layer.
type IOFigures struct {
	ReadBytes, WrittenBytes Figure
	Reads, Writes           Figure
}

// Pressure is how long tasks waited for one resource: Some of them, or all
// of them at once (Full).
type Pressure struct {
	Some, Full Stall
}

// Stall is one line of a pressure file (Documentation/accounting/psi.rst).
type Stall struct {
	Known bool
	// Avg10, Avg60 and Avg300 are percent of the last so many seconds.
	Avg10, Avg60, Avg300 float64
	// Total is microseconds since the group was made.
	Total uint64
}
