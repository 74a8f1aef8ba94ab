package policy

import v1 "k8s.io/api/core/v1"

// Measurement is an amount that may be unknown. The Value of an unknown one is 0.
type Measurement struct {
	Value int64
	Known bool
}

// Measured returns a known Measurement.
func Measured(value int64) Measurement { return Measurement{value, true} }

// Disk is the usage of a file system in bytes and inodes.
type Disk struct {
	Bytes, Inodes Measurement
}

// Pod is a running pod with its resource usage as in the Summary.
type Pod struct {
	Pod *v1.Pod
	// Known reports whether there are any stats of the pod. As in upstream, a pod
	// without stats is evicted first.
	Known bool
	// Memory is the pod's working set in bytes.
	Memory Measurement
	// Processes is the number of tasks.
	Processes Measurement
	// Ephemeral is the local ephemeral storage of the pod in bytes: writable layers,
	// logs, local volumes and everything else that counts as such.
	Ephemeral  Measurement
	Containers []Container
	Volumes    []Volume
}

// Container is the resource usage of a container.
type Container struct {
	Name string
	// Memory is the working set in bytes.
	Memory Measurement
	// Rootfs is the writable layer.
	Rootfs, Logs Disk
}

// Volume is the usage of a volume.
type Volume struct {
	Name string
	Disk
}
