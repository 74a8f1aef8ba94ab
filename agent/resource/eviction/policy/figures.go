package policy

import v1 "k8s.io/api/core/v1"

// Figure is an amount that may not be known; then it counts as zero.
type Figure struct {
	Value int64
	Known bool
}

// Measured is a figure that is known.
func Measured(value int64) Figure { return Figure{value, true} }

func (f Figure) value() int64 {
	if !f.Known {
		return 0
	}
	return f.Value
}

// Disk is what something takes of a file system, in bytes and inodes.
type Disk struct {
	Bytes, Inodes Figure
}

// Pod is a pod that runs, and what it uses, as the Summary tells it.
type Pod struct {
	Pod *v1.Pod
	// Known says that there are figures of the pod at all. Without them it is
	// the first to go, as in upstream.
	Known bool
	// Memory is the pod's working set in bytes.
	Memory Figure
	// Processes is how many tasks it has.
	Processes Figure
	// Ephemeral is what it has on the node's disk in bytes: writable layers,
	// logs, volumes and what else counts as its ephemeral storage.
	Ephemeral  Figure
	Containers []Container
	Volumes    []Volume
}

// Container is what a container of a pod uses.
type Container struct {
	Name string
	// Memory is the working set in bytes.
	Memory Figure
	// Rootfs is the writable layer.
	Rootfs, Logs Disk
}

// Volume is what a volume of a pod takes.
type Volume struct {
	Name string
	Disk
}
