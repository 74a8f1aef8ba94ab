package stats

import (
	"time"

	"github.com/tinylet/tinylet/agent/node/machine"
)

// Machine describes the node's hardware and kernel.
type Machine struct {
	machine.Info
	machine.Load
	Cores int
}

// SystemContainer is a system container of the Summary. Name is one of the
// SystemContainer constants of the stats API.
type SystemContainer struct {
	Name, Cgroup string
	// Start is the start time of its counters; zero is unknown.
	Start time.Time
}

// Pod is a pod that has a sandbox.
type Pod struct {
	Namespace, Name, UID string
	// Cgroup is the path below the root of the hierarchy.
	Cgroup  string
	Sandbox Sandbox
	// Containers are the running containers, including init containers.
	Containers []Container
}

// Sandbox is a pod's sandbox.
type Sandbox struct {
	ID string
	// Image is the image label of network counters. It must not be empty, because
	// dashboards ignore series without an image.
	Image string
	Start time.Time
	// Cgroup is the id label of network counters. The cgroup is not read.
	Cgroup string
}

// Container is a running container.
type Container struct {
	Name, ID string
	// Image is a name, not an ID, and never empty: dashboards ignore
	// containers without one.
	Image  string
	Start  time.Time
	Cgroup string
}

// Interface is a network interface and its counters since its creation.
type Interface struct {
	Name   string
	Rx, Tx Traffic
}

// Traffic holds the counters of one direction of an interface.
type Traffic struct {
	Bytes, Packets, Errors, Dropped uint64
}
