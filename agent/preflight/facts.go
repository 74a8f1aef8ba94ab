package preflight

import (
	"github.com/tinylet/tinylet/agent/container"
	"github.com/tinylet/tinylet/board"
)

// Facts are the input of Evaluate.
type Facts struct {
	Input
	Arch string // of this binary, which may be 32-bit on a 64-bit kernel
	UID  int    // of the caller
	Init string // name of process 1
	// Kubelet reports whether a kubelet is running.
	Kubelet bool

	Board board.Model // zero without a device tree
	// BootCommandLine is the file from which the Raspberry Pi firmware reads the
	// kernel's command line, if its file system is mounted; else "".
	BootCommandLine string

	Kernel Kernel
	Cgroup Cgroup
	Memory Memory

	IPForward   Tristate
	IPv6Forward Tristate
	SharedMount Tristate // the root mount is shared

	Directories []Directory
	Volumes     Volumes
	Runtime     Runtime
	// Packages are the distribution's packages that run containers.
	Packages []Package
	Network  Network
}

// Tristate reports whether a feature exists, or that this is unknown.
type Tristate uint8

// The zero value is Unknown.
const (
	Unknown Tristate = iota
	No
	Yes
)

// tristate returns Yes for true and No for false.
func tristate(b bool) Tristate {
	if b {
		return Yes
	}
	return No
}

type Kernel struct {
	Release string
	// CommandLine are the words of /proc/cmdline.
	CommandLine []string
	// Config maps the checked options, such as CONFIG_MEMCG, to "y", "m" or "n";
	// nil if the configuration cannot be read.
	Config map[string]string
	// Modules maps the name of a module to whether it is built in or installed.
	Modules map[string]Tristate

	Pressure       Tristate
	Seccomp        Tristate
	UserNamespaces Tristate
}

// CgroupKind is the kind of mount at /sys/fs/cgroup.
type CgroupKind string

const (
	CgroupNone    CgroupKind = ""
	CgroupV1      CgroupKind = "v1"
	CgroupHybrid  CgroupKind = "hybrid" // version 1 and version 2
	CgroupUnified CgroupKind = "unified"
)

type Cgroup struct {
	Kind        CgroupKind
	Controllers []string // controllers of the root cgroup, version 2
	InV1        []string // controllers of version 1 hierarchies
	Disabled    []string // controllers that are disabled in /proc/cgroups
}

// Memory sizes are in bytes; zero is unknown.
type Memory struct {
	Total, Available, Swap uint64
}

// Eviction are the memory reservations and the hard eviction threshold.
type Eviction struct {
	// Known is true if the configuration could be read.
	Known bool
	// Reserved is kubeReserved and systemReserved together, in bytes.
	Reserved uint64
	// Hard is the threshold evictionHard[memory.available] in bytes; 0 is none.
	// Default is true if the configuration sets no threshold and Hard is the
	// default for the memory size.
	Hard    uint64
	Default bool
}

// Directory is a directory that the node writes to.
type Directory struct {
	ID   string // for the finding
	Path string
	// ExistingPath is the directory itself or its nearest existing parent.
	ExistingPath string
	Writable     bool
	// Needs is the number of bytes that must be free for the node to work.
	Needs uint64
	// InMemory means that the file system is tmpfs or ramfs: what is written uses memory,
	// and is lost when the system reboots.
	InMemory bool
	// LostWithMemory is what is lost, if the directory must survive a reboot.
	LostWithMemory string
	// Total and Free are in bytes; Total 0 is unknown.
	Total, Free uint64
	// Inodes is 0 if the file system does not limit them.
	Inodes, InodesFree uint64
}

// Volumes are volumes that a kubelet set up with plugins that tinylet does not
// have.
type Volumes struct {
	// Found are the volumes with the names of their pods, or else with the pods'
	// UIDs, and the paths of mounts of such volumes that belong to no pod.
	Found []string
	// Err is why the volumes could not be listed.
	Err string
}

type Runtime struct {
	Endpoint string
	// Err is why it did not answer; Kind classifies Err.
	Err  string
	Kind RuntimeFailure

	Name, Version string
	// Ready and NetworkReady are nil if the runtime did not report them.
	Ready, NetworkReady *Condition
	// Info is the runtime's configuration from the verbose status.
	Info    container.Info
	Sandbox SandboxImage
	// CgroupDriver is systemd, cgroupfs, or "" if the runtime did not report it.
	CgroupDriver string
	// Systemd is why a call to systemd failed, if systemd is the cgroup driver.
	Systemd string
	// SystemBus is why a call to systemd over the system bus failed, if it works
	// otherwise.
	SystemBus string
	// RestartMonitorOff is true if containerd's configuration disables the plugin
	// that restarts containers by their labels.
	RestartMonitorOff bool
}

type Package struct {
	Name, Version string
	// Changelog is true if the package's changelog is installed. FixedCVEs are
	// the vulnerabilities that the changelog names.
	Changelog bool
	FixedCVEs []string
}

// SandboxImage is the image of pod sandboxes.
type SandboxImage struct {
	// Name is "" if it is unknown.
	Name string
	// Present reports whether the runtime has the image, Pinned whether image
	// garbage collection keeps it.
	Present, Pinned Tristate
}

// RuntimeFailure classifies why a runtime did not answer. The zero value is Answered.
type RuntimeFailure uint8

const (
	Answered RuntimeFailure = iota
	NoSocket
	NotAllowed
	StaleSocket
	NoResponse // it did not accept the connection, or did not answer, in time
	BadAddress // the endpoint is no address of a unix socket, or connecting to it fails for another reason
	Broken     // it answered with an error
)

type Condition struct {
	True            bool
	Reason, Message string
}

// Config is the result of reading the configuration.
type Config struct {
	File     string // "" if none is used
	Warnings []string
	Err      string
}
