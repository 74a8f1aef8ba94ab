package criconfig

import (
	"math"
	"path"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tinylet/tinylet/agent/pod"
	"github.com/tinylet/tinylet/cgroups"
)

// kubepods is the cgroup of all pods, as in the kubelet.
const kubepods = "kubepods"

// slice is the suffix of the names of systemd slices.
const slice = ".slice"

// PodCgroup returns the path of the pod's cgroup, absolute below the root of the hierarchy.
// It is CRI's cgroup parent:
//   - /kubepods/burstable/pod<uid> with the driver cgroupfs,
//   - /kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod<uid>.slice
//     with the driver systemd, where dashes of the UID become underscores.
//
// The cgroup of a Guaranteed pod is directly below kubepods.
func PodCgroup(p *v1.Pod, n *Node) string {
	return n.cgroup(append(qosCgroup(pod.QOSClass(p)), "pod"+string(p.UID))...)
}

// QoSCgroup returns the path of the cgroup of all pods of a QoS class.
func QoSCgroup(class v1.PodQOSClass, n *Node) string {
	return n.cgroup(qosCgroup(class)...)
}

func qosCgroup(class v1.PodQOSClass) []string {
	switch class {
	case v1.PodQOSBurstable:
		return []string{kubepods, "burstable"}
	case v1.PodQOSBestEffort:
		return []string{kubepods, "besteffort"}
	case v1.PodQOSGuaranteed:
	}
	return []string{kubepods}
}

func (n *Node) cgroup(parts ...string) string {
	for i := range parts {
		parts[i] = pathElement(parts[i])
	}
	root := strings.FieldsFunc(n.CgroupRoot, func(r rune) bool { return r == '/' })
	parts = append(root, parts...)
	if n.CgroupDriver != DriverSystemd {
		return "/" + path.Join(parts...)
	}
	// A slice's directory is in that of each prefix of its name
	// (systemd.slice(5)).
	name, out := "", "/"
	for _, part := range parts {
		if name != "" {
			name += "-"
		}
		name += strings.ReplaceAll(part, "-", "_")
		out = path.Join(out, name+slice)
	}
	return out
}

// PodResources returns the limits of the pod's cgroup, which must be set before
// its sandbox starts. The CPU weight comes from the containers' requests. The
// limits are the sum of the containers' limits if every container has one, or
// the pod-level limits. The pod's overhead is included (ResourceConfigForPod in
// pkg/kubelet/cm/helpers_linux.go).
func PodResources(p *v1.Pod, n *Node) cgroups.Resources {
	r := cgroups.Resources{CPUWeight: cpuWeight(pod.MinShares)}
	if pod.QOSClass(p) != v1.PodQOSBestEffort {
		limits := pod.Limits(p)
		r.CPUWeight = cpuWeight(pod.CPUShares(pod.MilliValue(pod.Requests(p)[v1.ResourceCPU])))
		if pod.HasLimit(p, v1.ResourceCPU) {
			period := n.quotaPeriod()
			r.CPUMax = cgroups.CPUMax{Quota: cgroups.Unlimited, Period: uint64(period)}
			if n.CPUCFSQuota {
				r.CPUMax.Quota = pod.CPUQuota(pod.MilliValue(limits[v1.ResourceCPU]), period)
			}
		}
		if pod.HasLimit(p, v1.ResourceMemory) {
			r.MemoryMax = pod.Value(limits[v1.ResourceMemory])
		}
	}
	if n.PodPidsLimit > 0 {
		r.PidsMax = n.PodPidsLimit
	}
	files := map[string]string{}
	limitHugePages(files, pod.Requests(p), 0, n)
	protectPod(files, p, n)
	setIOWeight(files, p, n)
	if len(files) > 0 {
		r.Unified = files
	}
	return r
}

// cpuWeight converts cgroup v1's CPU shares to v2's weight with the linear
// formula of the kubelet (KEP-2254), which runtimes used as well: 1024 shares
// are 39.
func cpuWeight(shares int64) uint64 {
	return uint64(1 + (min(max(shares, pod.MinShares), pod.MaxShares)-pod.MinShares)*9999/(pod.MaxShares-pod.MinShares))
}

// SharesOfWeight returns approximately the CPU shares that cpuWeight converts to
// weight.
func SharesOfWeight(weight uint64) int64 {
	return pod.MinShares + (min(max(int64(min(weight, 10000)), 1), 10000)-1)*(pod.MaxShares-pod.MinShares)/9999
}

// CurvedCPUWeight converts CPU shares to a weight with the curve of runc since 1.3.2 and
// crun since 1.23, through (2, 1), (1024, 100) and (262144, 10000). Runtimes apply it below
// the pod's cgroup only. The kubelet's linear formula applies to the pod's cgroup and above.
// The results need not be comparable, because the kernel compares weights between siblings
// only.
func CurvedCPUWeight(shares int64) uint64 {
	switch {
	case shares <= pod.MinShares:
		return 1
	case shares >= pod.MaxShares:
		return 10000
	}
	l := math.Log2(float64(shares))
	return uint64(math.Ceil(math.Pow(10, (l*l+125*l)/612-7.0/34)))
}

// ContainerLimits returns the limits of a container's own cgroup, as a runtime
// with the linear formula writes them. Zero means no limit.
func ContainerLimits(p *v1.Pod, c *v1.Container, n *Node) cgroups.Resources {
	r := linuxResources(c.Resources.Requests, effectiveLimits(p, c), n)
	out := cgroups.Resources{CPUWeight: cpuWeight(r.GetCpuShares()), MemoryMax: r.GetMemoryLimitInBytes()}
	if r.GetCpuQuota() > 0 {
		out.CPUMax = cgroups.CPUMax{Quota: r.GetCpuQuota(), Period: uint64(r.GetCpuPeriod())}
	}
	return out
}

// ContainerCgroup returns the path of the cgroup of a container, or of a
// sandbox's own process, below the pod's cgroup. The name is the ID with the driver cgroupfs,
// and a scope with the driver systemd, as containerd names it (getCgroupsPath in
// internal/cri/server/podsandbox of containerd). Other runtimes use other scopes.
func ContainerCgroup(podCgroup, id string, n *Node) string {
	if n.CgroupDriver != DriverSystemd {
		return podCgroup + "/" + id
	}
	return podCgroup + "/cri-containerd-" + id + ".scope"
}

// PodCgroups returns the cgroups that a pod of that UID may have, one for each
// QoS class. It is for the cleanup of a pod whose spec is no longer known.
func PodCgroups(uid types.UID, n *Node) []string {
	classes := []v1.PodQOSClass{v1.PodQOSGuaranteed, v1.PodQOSBurstable, v1.PodQOSBestEffort}
	paths := make([]string, len(classes))
	for i, class := range classes {
		paths[i] = n.cgroup(append(qosCgroup(class), "pod"+string(uid))...)
	}
	return paths
}

// PodUIDOfCgroup returns the UID of the pod whose cgroup has that name, directly below
// the cgroup of its QoS class. A slice has dashes of the UID as underscores, so
// a UID with underscores is returned with dashes, as in the kubelet
// (ParseSystemdToCgroupName in pkg/kubelet/cm/cgroup_manager_linux.go). ok is
// false if the name is not that of a pod's cgroup.
func PodUIDOfCgroup(name string, class v1.PodQOSClass, n *Node) (uid types.UID, ok bool) {
	before, after := "pod", ""
	if n.CgroupDriver == DriverSystemd {
		before, after = strings.TrimSuffix(path.Base(QoSCgroup(class, n)), slice)+"-pod", slice
	}
	text, isPod := strings.CutPrefix(name, before)
	text, isGroup := strings.CutSuffix(text, after)
	if n.CgroupDriver == DriverSystemd {
		text = strings.ReplaceAll(text, "_", "-")
	}
	return types.UID(text), isPod && isGroup && text != ""
}

// fileIOWeight is the kernel's file for a cgroup's share of disk I/O: 1 to
// 10000, 100 by default.
const fileIOWeight = "io.weight"

// setIOWeight sets the pod's io.weight by its priority, which the kubelet does not
// do: 50 below 0, 200 above 0, 400 for a critical pod.
func setIOWeight(files map[string]string, p *v1.Pod, n *Node) {
	if !n.IOWeights {
		return
	}
	weight := 100
	switch priority := p.Spec.Priority; {
	case pod.IsCritical(p):
		weight = 400
	case priority == nil || *priority == 0:
	case *priority > 0:
		weight = 200
	default:
		weight = 50
	}
	files[fileIOWeight] = strconv.Itoa(weight)
}
