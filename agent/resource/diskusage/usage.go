package diskusage

import (
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
)

// Pod says which places a pod has. Those that are not there are passed over.
type Pod struct {
	UID, Namespace string
	Volumes        []Volume
	// Containers are all of the spec, whether they run or not.
	Containers []Container
	// Other counts as the pod's beside, such as its /etc/hosts.
	Other []Place
}

// Volume is a volume of a pod.
type Volume struct {
	Name string
	Place
	// Mounted says that it is a file system mounted by itself; while it is
	// not, there is no volume. What is mounted by itself is measured as a
	// whole in any case.
	Mounted bool
	// Ephemeral says that it counts as the pod's ephemeral storage.
	Ephemeral bool
	// Claim is the PersistentVolumeClaim that it is of, or empty.
	Claim string
}

// Container is a container of a pod.
type Container struct {
	Name string
	// ID is the runtime's, of the one that runs; it may be empty.
	ID string
	// Logs is where the logs of all its runs are.
	Logs Place
}

// PodUsage is what a pod has on disks.
type PodUsage struct {
	// Containers are in the order that was asked for.
	Containers []ContainerUsage
	Volumes    []VolumeUsage
	// Other is what counts as the pod's beside: /etc/hosts, and the logs of
	// containers that were not asked for. May be nil.
	Other *statsapi.FsStats
}

// ContainerUsage is a container's writable layer and its logs; nil is not
// known.
type ContainerUsage struct {
	Rootfs, Logs *statsapi.FsStats
}

// VolumeUsage is a pod's volume.
type VolumeUsage struct {
	Stats statsapi.VolumeStats
	// Ephemeral says that it is on the node's disk and counts as the pod's
	// ephemeral storage.
	Ephemeral bool
}

// NodeUsage are the node's file systems: the kubelet's, that of images and
// that of writable layers; nil is not known.
type NodeUsage struct {
	Fs, ImageFs, ContainerFs *statsapi.FsStats
}

// Claim is a PersistentVolumeClaim and the file system behind it.
type Claim struct {
	Namespace, Name string
	Stats           statsapi.FsStats
}
