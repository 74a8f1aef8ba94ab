package evictionapi

import (
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// Signal is an eviction signal. Thresholds are handled in the order of signals:
// memory first, as in upstream, where the others have no order.
type Signal uint8

// The signals (pkg/kubelet/eviction/api/types.go). Available is in bytes, of
// process IDs in processes; InodesFree is in inodes.
const (
	// MemoryAvailable is the node's memory minus its working set.
	MemoryAvailable Signal = iota + 1
	// AllocatableMemoryAvailable is the pods' memory limit minus their working
	// set.
	AllocatableMemoryAvailable
	// NodeFsAvailable is of nodefs, the file system of volumes and logs.
	NodeFsAvailable
	NodeFsInodesFree
	// ImageFsAvailable is of imagefs, the file system of image layers.
	ImageFsAvailable
	ImageFsInodesFree
	// ContainerFsAvailable is of containerfs, the file system of writable layers.
	ContainerFsAvailable
	ContainerFsInodesFree
	// PIDAvailable is the number of tasks that can still be started.
	PIDAvailable

	// NumSignals is the length of an array that is indexed by Signal. The element 0
	// is unused.
	NumSignals
)

// Starved resources, in addition to memory and ephemeral storage
// (pkg/kubelet/eviction/helpers.go).
const (
	ResourceInodes v1.ResourceName = "inodes"
	ResourcePIDs   v1.ResourceName = "pids"
)

var signals = [NumSignals]struct {
	name     string
	resource v1.ResourceName
	under    Conditions
}{
	0:                          {name: "unknown"},
	MemoryAvailable:            {"memory.available", v1.ResourceMemory, Conditions{Memory: true}},
	AllocatableMemoryAvailable: {"allocatableMemory.available", v1.ResourceMemory, Conditions{Memory: true}},
	NodeFsAvailable:            {"nodefs.available", v1.ResourceEphemeralStorage, Conditions{Disk: true}},
	NodeFsInodesFree:           {"nodefs.inodesFree", ResourceInodes, Conditions{Disk: true}},
	ImageFsAvailable:           {"imagefs.available", v1.ResourceEphemeralStorage, Conditions{Disk: true}},
	ImageFsInodesFree:          {"imagefs.inodesFree", ResourceInodes, Conditions{Disk: true}},
	ContainerFsAvailable:       {"containerfs.available", v1.ResourceEphemeralStorage, Conditions{Disk: true}},
	ContainerFsInodesFree:      {"containerfs.inodesFree", ResourceInodes, Conditions{Disk: true}},
	PIDAvailable:               {"pid.available", ResourcePIDs, Conditions{PID: true}},
}

// SignalOf returns the signal with that name, or false if there is none.
func SignalOf(name string) (Signal, bool) {
	for s := MemoryAvailable; s < NumSignals; s++ {
		if signals[s].name == name {
			return s, true
		}
	}
	return 0, false
}

// Known reports whether s is one of the signals.
func (s Signal) Known() bool { return s > 0 && s < NumSignals }

// String returns the signal's name in the configuration and in metrics.
func (s Signal) String() string { return signals[s.index()].name }

// Resource returns the starved resource of the signal, as events and annotations
// name it, "" for an unknown signal.
func (s Signal) Resource() v1.ResourceName { return signals[s.index()].resource }

// Conditions returns the node condition of the signal.
func (s Signal) Conditions() Conditions { return signals[s.index()].under }

// index returns the index in signals, 0 for an unknown signal.
func (s Signal) index() Signal {
	if !s.Known() {
		return 0
	}
	return s
}

// Format returns the format of the signal's quantities.
func (s Signal) Format() resource.Format {
	switch s.Resource() {
	case ResourceInodes, ResourcePIDs:
		return resource.DecimalSI
	default:
		return resource.BinarySI
	}
}

// Conditions are the node conditions MemoryPressure, DiskPressure and
// PIDPressure.
type Conditions struct {
	Memory, Disk, PID bool
}

// Or returns the conditions that c or d has.
func (c Conditions) Or(d Conditions) Conditions {
	return Conditions{c.Memory || d.Memory, c.Disk || d.Disk, c.PID || d.PID}
}

// String lists the conditions that are true in brackets, as upstream's messages do.
func (c Conditions) String() string {
	var names []string
	for _, one := range [...]struct {
		holds bool
		name  v1.NodeConditionType
	}{{c.Memory, v1.NodeMemoryPressure}, {c.Disk, v1.NodeDiskPressure}, {c.PID, v1.NodePIDPressure}} {
		if one.holds {
			names = append(names, string(one.name))
		}
	}
	return "[" + strings.Join(names, " ") + "]"
}

// Observation is a measurement of a signal, in the signal's unit. For memory,
// Capacity is the sum of the available memory and the working set, as upstream.
type Observation struct {
	Available, Capacity int64
	// Time is when the signal was measured. It should have the monotonic
	// reading of time.Now: after the clock is set back, a new observation would
	// otherwise count as old. The zero time always counts as new.
	Time time.Time
	// Known means that the signal was measured.
	Known bool
}

// Newer reports whether o is newer than last, an observation of the same signal
// (thresholdsUpdatedStats in pkg/kubelet/eviction/helpers.go).
func (o Observation) Newer(last Observation) bool {
	return o.Known && (!last.Known || o.Time.IsZero() || o.Time.After(last.Time))
}

// Observations are the observations of all signals at one time, by Signal.
type Observations [NumSignals]Observation
