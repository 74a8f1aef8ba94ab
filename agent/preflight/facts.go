package preflight

import (
	"time"

	"github.com/tinylet/tinylet/agent/container"
	"github.com/tinylet/tinylet/board"
)

// Facts is everything that Evaluate judges by.
type Facts struct {
	Arch     string // as Go names it
	UID      int    // of the caller
	NodeName string
	Init     string // name of process 1

	Now, Built time.Time

	Board board.Model // zero where there is no device tree
	// BootCommandLine is the file that the Raspberry Pi firmware takes the
	// kernel's command line from, where it is mounted; else "".
	BootCommandLine string

	Kernel     Kernel
	Cgroup     Cgroup
	Memory     Memory
	FailSwapOn bool
	Eviction   Eviction

	IPForward   Known
	IPv6Forward Known
	SharedMount Known // the root mount propagates

	Folders []Folder
	Volumes Volumes
	Runtime Runtime
	// Packages are those of the distribution that containers run with.
	Packages []Package
	Network  Network
	Config   Config
	Journal  Journal
}

// Known is what is known of a feature.
type Known uint8

// The zero value is not to know.
const (
	Unknown Known = iota
	No
	Yes
)

// Kernel is what the kernel can do.
type Kernel struct {
	Release string
	// CommandLine has the words of /proc/cmdline.
	CommandLine []string
	// Config has the options in question, such as CONFIG_MEMCG: "y", "m" or
	// "n"; nil where the configuration cannot be read.
	Config map[string]string
	// Modules says of a module whether it is there, built in or to be loaded.
	Modules map[string]Known

	Pressure       Known
	Seccomp        Known
	UserNamespaces Known
}

// CgroupKind is what is mounted at /sys/fs/cgroup.
type CgroupKind string

// Kinds of cgroup mounts.
const (
	CgroupNone    CgroupKind = ""
	CgroupV1      CgroupKind = "v1"
	CgroupHybrid  CgroupKind = "hybrid" // version 1 with version 2 beside it
	CgroupUnified CgroupKind = "unified"
)

// Cgroup is the state of the cgroup tree.
type Cgroup struct {
	Kind        CgroupKind
	Controllers []string // of the root, version 2
	InV1        []string // controllers that a version 1 tree holds
	Disabled    []string // those that /proc/cgroups shows as not enabled
}

// Memory sizes are in bytes; zero is unknown.
type Memory struct {
	Total, Available, Swap uint64
}

// Eviction is what is kept of the memory that pods may not use.
type Eviction struct {
	// Known says that the configuration could be read.
	Known bool
	// Reserved is kubeReserved and systemReserved together, in bytes.
	Reserved uint64
	// Hard is the threshold evictionHard[memory.available] in bytes; 0 is
	// none. Default says that it is the one for so much memory where the
	// configuration sets none.
	Hard    uint64
	Default bool
}

// Folder is a place that the node writes to.
type Folder struct {
	ID   string // for the finding
	Path string
	// Exists is the folder itself or the nearest one above it that is there.
	Exists   string
	Writable bool
	// Needs is how many bytes must be free for the node to work.
	Needs uint64
	// Total and Free are in bytes; Total 0 is unknown.
	Total, Free uint64
	// Inodes is 0 where the file system has no limit on them.
	Inodes, InodesFree uint64
}

// Volumes are those that a kubelet set up with plugins that tinylet does not
// have.
type Volumes struct {
	Foreign []ForeignVolume
	// Staged are mounts of such volumes that belong to no pod, by their paths.
	Staged []string
	// Err is why they could not be looked for.
	Err string
}

// ForeignVolume is one of them.
type ForeignVolume struct {
	// Pod is the pod as namespace/name, or its UID where that is not known.
	Pod, Volume string
}

// Runtime is what the container runtime answered.
type Runtime struct {
	Endpoint string
	// Err is why it did not answer; Kind sorts it.
	Err  string
	Kind RuntimeFailure

	Name, Version string
	// Ready and NetworkReady are nil where the runtime did not tell.
	Ready, NetworkReady *Condition
	// Info is what it says of its configuration in a verbose status.
	Info container.Info
	// Sandbox is the image that every pod's sandbox needs.
	Sandbox SandboxImage
	// CgroupDriver is systemd, cgroupfs, or "" where it did not tell.
	CgroupDriver string
	// Systemd is why systemd could not be asked, where it is the driver.
	Systemd string
	// SystemBus is why it could not over the system bus, where else it could.
	SystemBus string
	// RestartMonitorOff says that containerd is configured without the plugin
	// that restarts containers by their labels.
	RestartMonitorOff bool
}

// Package is a package of the distribution.
type Package struct {
	Name, Version string
	// Changelog says that its changelog is installed; Repairs are the
	// vulnerabilities that it names.
	Changelog bool
	Repairs   []string
}

// SandboxImage is the image of pod sandboxes.
type SandboxImage struct {
	// Name is "" where it is not known.
	Name string
	// Present reports whether the runtime has it, Pinned whether image garbage
	// collection leaves it alone.
	Present, Pinned Known
}

// RuntimeFailure sorts why a runtime did not answer.
type RuntimeFailure uint8

// Failures of a runtime.
const (
	Answered RuntimeFailure = iota
	NoSocket
	NotAllowed
	NobodyListens
	Silent // it took the connection and did not answer in time
	Broken // it answered with an error
)

// Condition is one of the runtime's conditions.
type Condition struct {
	True            bool
	Reason, Message string
}

// Config is what reading the configuration gave.
type Config struct {
	File     string // "" where none is in use
	Warnings []string
	Err      string
}
