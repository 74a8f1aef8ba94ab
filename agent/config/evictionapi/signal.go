package evictionapi

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// Signal is what a node can run short of. The order is that in which
// thresholds are acted on: memory first, as in upstream, where the rest has no
// order.
type Signal uint8

// The signals (pkg/kubelet/eviction/api/types.go). Available is in bytes, of
// process IDs in processes; InodesFree is in inodes.
const (
	// MemoryAvailable is the node's memory without its working set.
	MemoryAvailable Signal = iota + 1
	// AllocatableMemoryAvailable is what pods may use together, without what
	// they use.
	AllocatableMemoryAvailable
	// NodeFsAvailable is of the file system of volumes and logs.
	NodeFsAvailable
	NodeFsInodesFree
	// ImageFsAvailable is of the file system of image layers.
	ImageFsAvailable
	ImageFsInodesFree
	// ContainerFsAvailable is of the file system of writable layers.
	ContainerFsAvailable
	ContainerFsInodesFree
	// PIDAvailable is how many tasks can still be started.
	PIDAvailable

	// Signals is the length of an array that is indexed by Signal. Its first
	// element is no signal's.
	Signals
)

// What can be starved, beside memory and ephemeral storage
// (pkg/kubelet/eviction/helpers.go).
const (
	ResourceInodes v1.ResourceName = "inodes"
	ResourcePIDs   v1.ResourceName = "pids"
)

var signals = [Signals]struct {
	name     string
	resource v1.ResourceName
	under    Conditions
}{
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

// SignalOf is the signal of that name; false if there is none.
func SignalOf(name string) (Signal, bool) {
	for s := MemoryAvailable; s < Signals; s++ {
		if signals[s].name == name {
			return s, true
		}
	}
	return 0, false
}

func (s Signal) Known() bool { return s > 0 && s < Signals }

// String is the name in the configuration and in metrics.
func (s Signal) String() string {
	if !s.Known() {
		return "unknown"
	}
	return signals[s].name
}

// Resource is what the node is short of by this signal, as events and
// annotations name it; empty for what is no signal.
func (s Signal) Resource() v1.ResourceName {
	if !s.Known() {
		return ""
	}
	return signals[s].resource
}

// Conditions is the node condition that the signal belongs to.
func (s Signal) Conditions() Conditions {
	if !s.Known() {
		return Conditions{}
	}
	return signals[s].under
}

// Format is how amounts of the signal are written.
func (s Signal) Format() resource.Format {
	switch s.Resource() {
	case ResourceInodes, ResourcePIDs:
		return resource.DecimalSI
	default:
		return resource.BinarySI
	}
}
