// Package criconfig turns a pod into the configs that CRI wants, field by
// field as a stock kubelet does (pkg/kubelet/kuberuntime and
// pkg/kubelet/kubelet_pods.go of Kubernetes 1.36), so that either agent
// adopts what the other started. It owns the names too: log directories,
// cgroups, the container's hash. Every function is pure: what must be read
// from the node comes in through Node and ContainerInput.
//
// It builds what package admit lets through; what admit refuses is not
// looked at here. What a container misses at the time is a ConfigError.
package criconfig

import (
	"path/filepath"
	"strconv"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/tinylet/tinylet/agent/pod"
)

// Cgroup drivers, as KubeletConfiguration spells them.
const (
	DriverCgroupfs = "cgroupfs"
	DriverSystemd  = "systemd"
)

// DefaultPodLogsDir is where a kubelet has its pods' logs.
const DefaultPodLogsDir = "/var/log/pods"

// Node is what the configs need to know of the node. The zero value works:
// cgroupfs, no cluster DNS, no CPU quotas. It is not changed here and may be
// shared.
type Node struct {
	// HostIPs are the node's addresses, the primary first.
	HostIPs []string

	// ClusterDNS are the cluster's name servers; none where there is no
	// cluster.
	ClusterDNS    []string
	ClusterDomain string
	// Resolv is the node's resolv.conf by ParseResolvConf; nil where the
	// configuration names none.
	Resolv *runtimeapi.DNSConfig

	// CgroupDriver is DriverCgroupfs ("" too) or DriverSystemd.
	CgroupDriver string
	// CgroupRoot is the cgroup above kubepods; "" is the hierarchy's root.
	CgroupRoot string
	// PodLogsDir is DefaultPodLogsDir where it is "".
	PodLogsDir string

	// MemoryCapacity is the machine's memory in bytes, for oom_score_adj;
	// where it is 0 a container's request does not protect it.
	MemoryCapacity int64
	// MemoryUnreserved is what of it nothing is reserved of, in bytes: what a
	// container without a limit is held back before (MemoryThrottling). What
	// eviction keeps free is in it (GetNodeAllocatableAbsolute in
	// pkg/kubelet/cm).
	MemoryUnreserved int64
	// Allocatable is what pods may use, for environment variables that ask
	// for limits which the container does not set.
	Allocatable v1.ResourceList
	// Enforced is what all pods together may use, process IDs (pid) included;
	// what is left out has no limit.
	Enforced v1.ResourceList

	// CPUCFSQuota turns CPU limits into quotas (the kubelet's default).
	CPUCFSQuota bool
	// CPUCFSQuotaPeriod is the kernel's 100 ms where it is 0.
	CPUCFSQuotaPeriod time.Duration
	// SingleProcessOOMKill lets the kernel kill one process of a container
	// that is out of memory instead of all (the kubelet's default on cgroup
	// v2 is all).
	SingleProcessOOMKill bool
	// MemoryAccounting says that cgroups bound and protect memory.
	MemoryAccounting bool
	// SwapAccounting says that cgroups have memory.swap.max; without it
	// nothing bounds what containers swap.
	SwapAccounting bool
	// LimitedSwap lets Burstable containers have a share of the SwapCapacity,
	// in bytes, as large as that of the memory which they ask for; else
	// containers get no swap.
	LimitedSwap  bool
	SwapCapacity int64
	// MemoryQoS protects the memory that pods ask for (MemoryAccounting has to
	// be there), and MemoryThrottling,
	// above 0 and at most 1, holds containers back at that part of the way
	// from their request to their limit; 0 does not.
	MemoryQoS        bool
	MemoryThrottling float64
	// IOWeights gives pods shares of the disks by their priority; the kernel
	// has to know io.weight.
	IOWeights bool
	// HugePageSizes are the sizes in the kernel, such as 2MB, by
	// HugePageSize; containers get none that they do not ask for.
	// HugePageAccounting says that cgroups can bound them.
	HugePageSizes      []string
	HugePageAccounting bool
	// PodPidsLimit is how many tasks a pod may have; 0 and below is no limit.
	PodPidsLimit int64

	// SeccompDefault gives containers the runtime's seccomp profile where
	// they ask for none.
	SeccompDefault bool
	// SeccompProfileRoot is where the node's own profiles are;
	// DefaultSeccompProfileRoot where it is "".
	SeccompProfileRoot string
	// SELinux says that the kernel has it on; files made for a container then
	// get the container's label.
	SELinux bool
	// MaskedPaths are masked in containers beside the usual ones: the
	// thermal_throttle folders of an x86 machine's CPUs.
	MaskedPaths []string
}

// LogDirectory is the absolute directory of a pod's logs.
func LogDirectory(p *v1.Pod, n *Node) string {
	dir := n.PodLogsDir
	if dir == "" {
		dir = DefaultPodLogsDir
	}
	return filepath.Join(dir, oneName(p.Namespace+"_"+p.Name+"_"+string(p.UID)))
}

// oneName keeps a name in its directory whatever a manifest gives as UID or
// name. Package admit refuses such; here nothing may depend on that.
func oneName(name string) string {
	return strings.ReplaceAll(name, "/", "_")
}

// LogPath is a container's log file below the pod's log directory.
func LogPath(container string, restartCount int) string {
	return filepath.Join(oneName(container), strconv.Itoa(restartCount)+".log")
}

// LogLink is the base name of the symbolic link in /var/log/containers that
// log collectors follow (pkg/kubelet/kuberuntime/legacy.go).
func LogLink(ref pod.Ref, container, containerID string) string {
	const suffix = ".log"
	name := oneName(ref.Name + "_" + ref.Namespace + "_" + container + "-" + containerID)
	return name[:min(len(name), maxFileName-len(suffix))] + suffix
}

// maxFileName is ext4's limit.
const maxFileName = 255
