// Package criconfig builds the CRI configs of a pod's sandbox and containers,
// field by field as a stock kubelet does (pkg/kubelet/kuberuntime and
// pkg/kubelet/kubelet_pods.go of Kubernetes 1.36), so that either agent adopts
// what the other started. It also defines the names of log directories and cgroups, and the
// container's hash. The functions read nothing from the node: Node, SandboxInput and
// ContainerInput have what they need. The only exceptions are the kernel's page size and
// ContainerInput.ReadEnvFile.
//
// It builds the configs of pods that package admission admits. What admission rejects is not
// checked again. A dependency that a container lacks at the time is a ConfigError.
package criconfig

import (
	"cmp"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/tinylet/tinylet/agent/config"
	"github.com/tinylet/tinylet/agent/pod"
)

// Cgroup drivers, as KubeletConfiguration spells them.
const (
	DriverCgroupfs = "cgroupfs"
	DriverSystemd  = "systemd"
)

// DefaultPodLogsDir is the kubelet's directory of pod logs.
const DefaultPodLogsDir = config.DefaultPodLogsDir

// Node is the state and configuration of the node that the configs depend on. The zero value
// is valid: cgroupfs, no cluster DNS, no CPU quotas. This package does not change a Node, so
// it may be shared.
type Node struct {
	// HostIPs are the node's addresses, the primary first.
	HostIPs []string

	// ClusterDNS are the cluster's name servers; none without a cluster.
	ClusterDNS    []string
	ClusterDomain string
	// Resolv is the node's resolv.conf, parsed by ParseResolvConf; nil if the
	// configuration names none.
	Resolv *runtimeapi.DNSConfig

	// CgroupDriver is DriverCgroupfs (also "") or DriverSystemd.
	CgroupDriver string
	// CgroupRoot is the cgroup above kubepods; "" is the root of the hierarchy.
	CgroupRoot string
	// PodLogsDir is the directory of pod logs; "" is DefaultPodLogsDir.
	PodLogsDir string

	// MemoryCapacity is the node's memory in bytes, for oom_score_adj. If it is
	// 0, a container's request does not lower its oom_score_adj.
	MemoryCapacity int64
	// MemoryUnreserved is the node's memory in bytes that is not reserved, from
	// which MemoryThrottling is computed for a container without a limit. It
	// includes what eviction keeps free (GetNodeAllocatableAbsolute in
	// pkg/kubelet/cm).
	MemoryUnreserved int64
	// Allocatable is the node allocatable, for environment variables that refer
	// to limits which the container does not set.
	Allocatable v1.ResourceList
	// EnforcedAllocatable are the limits of all pods together: cpu, memory and process IDs
	// (pid). A resource that is not in it has no limit.
	EnforcedAllocatable v1.ResourceList

	// CPUCFSQuota enforces CPU limits with quotas (the kubelet's default).
	CPUCFSQuota bool
	// CPUCFSQuotaPeriod is the period of quotas; 0 is the kernel's 100 ms.
	CPUCFSQuotaPeriod time.Duration
	// SingleProcessOOMKill lets the kernel kill one process of a container that
	// is out of memory instead of all (the kubelet's default on cgroup v2 is
	// all).
	SingleProcessOOMKill bool
	// MemoryAccounting reports whether cgroups can limit and protect memory.
	MemoryAccounting bool
	// SwapAccounting reports whether cgroups have memory.swap.max. Without it
	// nothing limits the swap of containers.
	SwapAccounting bool
	// LimitedSwap gives a Burstable container the share of SwapCapacity, in
	// bytes, that its request has of the memory. Without it containers get no
	// swap.
	LimitedSwap  bool
	SwapCapacity int64
	// MemoryQoS protects the memory requests of pods, and needs
	// MemoryAccounting. MemoryThrottling, above 0 and at most 1, throttles a
	// container at that fraction of the way from its request to its limit; 0
	// disables it.
	MemoryQoS        bool
	MemoryThrottling float64
	// IOWeights sets the pods' io.weight by their priority. The kernel must
	// have io.weight.
	IOWeights bool
	// HugePageSizes are the page sizes in the kernel, such as 2MB, in the form
	// of HugePageSize. Containers get none that they do not request.
	// HugePageAccounting reports whether cgroups can limit them.
	HugePageSizes      []string
	HugePageAccounting bool
	// PodPidsLimit is the most tasks of a pod; 0 and below is no limit.
	PodPidsLimit int64

	// SeccompDefault gives the runtime's default seccomp profile to containers
	// that have none.
	SeccompDefault bool
	// SeccompProfileRoot is the directory of the node's seccomp profiles.
	SeccompProfileRoot string
	// SELinux reports whether SELinux is enabled in the kernel. Files created
	// for a container then get the container's label.
	SELinux bool
}

// LogDirectory returns the absolute path of a pod's log directory.
func LogDirectory(p *v1.Pod, n *Node) string {
	return filepath.Join(cmp.Or(n.PodLogsDir, DefaultPodLogsDir), pathElement(p.Namespace+"_"+p.Name+"_"+string(p.UID)))
}

// pathElement makes a name a single path element, whatever UID or name a manifest has.
// Package admission rejects names with a slash; pathElement does not depend on that.
func pathElement(name string) string {
	return strings.ReplaceAll(name, "/", "_")
}

// LogPath returns a container's log file, relative to the pod's log directory.
func LogPath(container string, restartCount int) string {
	return filepath.Join(pathElement(container), strconv.Itoa(restartCount)+".log")
}

// ContainerLogPath returns the absolute path of a container's log file.
func ContainerLogPath(p *v1.Pod, n *Node, container string, restartCount int) string {
	return filepath.Join(LogDirectory(p, n), LogPath(container, restartCount))
}

// LogLink returns the base name of the symbolic link in /var/log/containers
// that log collectors follow (pkg/kubelet/kuberuntime/legacy.go).
func LogLink(ref pod.Ref, container, containerID string) string {
	const suffix = ".log"
	name := pathElement(ref.Name + "_" + ref.Namespace + "_" + container + "-" + containerID)
	return name[:min(len(name), maxFileName-len(suffix))] + suffix
}

// maxFileName is ext4's limit in bytes.
const maxFileName = 255
