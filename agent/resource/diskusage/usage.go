package diskusage

import (
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
)

// Pod holds the places of a pod. Missing places are skipped.
type Pod struct {
	UID, Namespace string
	Volumes        []Volume
	// Containers holds all containers of the spec, running or not.
	Containers []Container
	// Other holds places that also count for the pod, such as its /etc/hosts.
	Other []Place
}

// Volume is a volume of a pod.
type Volume struct {
	Name string
	Place
	// Mounted means that the volume is a mounted file system; while it is not
	// mounted, there is no volume. A mounted file system is always measured as a
	// whole.
	Mounted bool
	// Ephemeral means that it counts as the pod's ephemeral storage.
	Ephemeral bool
	// Claim is the name of its PersistentVolumeClaim, or "".
	Claim string
}

// Container is a container of a pod.
type Container struct {
	Name string
	// ID is the runtime's ID of the running container; it may be "".
	ID string
	// Logs is the directory of the logs of all its attempts.
	Logs Place
}

// PodUsage is the disk usage of a pod.
type PodUsage struct {
	// Containers are in the requested order.
	Containers []ContainerUsage
	Volumes    []VolumeUsage
	// Other is what else counts for the pod: /etc/hosts, and the logs of containers
	// that were not requested. May be nil.
	Other *statsapi.FsStats
}

// ContainerUsage is the usage of a container's writable layer and of its logs; nil
// means unknown.
type ContainerUsage struct {
	Rootfs, Logs *statsapi.FsStats
}

// VolumeUsage is the usage of a pod's volume.
type VolumeUsage struct {
	Stats statsapi.VolumeStats
	// Ephemeral means that it is on the node's disk and counts as the pod's ephemeral
	// storage.
	Ephemeral bool
}

// NodeUsage is the usage of the node's file systems: the kubelet's, that of images
// and that of writable layers; nil means unknown.
type NodeUsage struct {
	Fs, ImageFs, ContainerFs *statsapi.FsStats
}

// Claim is a PersistentVolumeClaim and the usage of its file system.
type Claim struct {
	Namespace, Name string
	Stats           statsapi.FsStats
}
