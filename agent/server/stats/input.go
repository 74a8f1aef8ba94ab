package stats

import (
	"time"

	"github.com/tinylet/tinylet/agent/resource/diskusage"
)

// Machine is what the node has, whatever runs on it.
type Machine struct {
	// MachineID, SystemUUID and BootID are those of the Node's status.
	MachineID, SystemUUID, BootID string
	Boot                          time.Time
	Cores                         int
	// Memory is what the kernel manages, in bytes. SwapTotal and SwapFree are
	// bytes too; without swap both are 0.
	Memory, SwapTotal, SwapFree uint64
	// MaxTasks and Tasks are how many threads may and do exist; 0 is not
	// known.
	MaxTasks, Tasks int64
}

// Group is a cgroup with a name of its own in the Summary, one of the
// SystemContainer constants of the stats API.
type Group struct {
	Name, Cgroup string
	// Start is since when it counts; zero is not known.
	Start time.Time
}

// Pod is a pod that has a sandbox.
type Pod struct {
	Namespace, Name, UID string
	// Cgroup is the path below the hierarchy's root.
	Cgroup  string
	Sandbox Sandbox
	// Containers are those that run, init containers among them.
	Containers []Container
}

// Sandbox is a pod's sandbox.
type Sandbox struct {
	ID string
	// Image is what the image label of network counters says. Dashboards pass
	// over an empty one, so a runtime without pause images needs a name too.
	Image string
	Start time.Time
	// Cgroup is the id label of network counters; it is not read.
	Cgroup string
}

// Container is a container that runs.
type Container struct {
	Name, ID string
	// Image is a name, not an ID, and never empty: dashboards pass over
	// containers without.
	Image  string
	Start  time.Time
	Cgroup string
}

// Interface is a network interface and its counters since it was made.
type Interface struct {
	Name   string
	Rx, Tx Traffic
}

// Traffic is one direction of an interface.
type Traffic struct {
	Bytes, Packets, Errors, Dropped uint64
}

// What the pods and the node have on disks is told as agent/resource/diskusage measures it.
type (
	PodDisk       = diskusage.PodUsage
	ContainerDisk = diskusage.ContainerUsage
	VolumeDisk    = diskusage.VolumeUsage
	NodeDisk      = diskusage.NodeUsage
)
