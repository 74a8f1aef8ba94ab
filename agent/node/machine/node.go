// Package machine reads the capacity, the load and the identity of the machine, and
// computes the node's allocatable resources and labels. It reads /proc, /sys and a few
// files of the distribution on each call, and caches nothing.
package machine

import (
	"cmp"
	"fmt"
	"maps"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	kubeletapis "k8s.io/kubelet/pkg/apis"

	"github.com/tinylet/tinylet/agent/pod"
)

// Roots are the directories of the kernel's and the pods' files.
type Roots struct {
	Proc string // "" is /proc
	Sys  string // "" is /sys
	// Root holds etc, usr and var; "" is /.
	Root string
	// Storage is a directory on the file system that holds the pods' volumes and
	// logs. With "" no ephemeral storage is counted.
	Storage string
}

func (r Roots) proc() string { return cmp.Or(r.Proc, "/proc") }

func (r Roots) sys() string { return cmp.Or(r.Sys, "/sys") }

func (r Roots) root() string { return cmp.Or(r.Root, "/") }

// Capacity returns the node's capacity: CPUs, memory in bytes, huge pages,
// ephemeral storage in bytes, and the number of pods: the smaller of maxPods and
// podsPerCore times the number of CPUs, unless podsPerCore is 0. What cannot be read
// is omitted.
func Capacity(r Roots, maxPods, podsPerCore int32) v1.ResourceList {
	cpus, pods := int64(runtime.NumCPU()), int64(maxPods)
	if podsPerCore > 0 {
		pods = min(pods, int64(podsPerCore)*cpus)
	}
	list := v1.ResourceList{
		v1.ResourceCPU:  *resource.NewQuantity(cpus, resource.DecimalSI),
		v1.ResourcePods: *resource.NewQuantity(pods, resource.DecimalSI),
	}
	if bytes := Memory(r); bytes > 0 {
		list[v1.ResourceMemory] = *resource.NewQuantity(bytes, resource.BinarySI)
	}
	if bytes := storage(r.Storage); bytes > 0 {
		list[v1.ResourceEphemeralStorage] = *resource.NewQuantity(bytes, resource.BinarySI)
	}
	maps.Copy(list, hugePages(r))
	return list
}

// Reserved are the reservations and thresholds that are subtracted from the
// capacity.
type Reserved struct {
	// Kube and System are kubeReserved and systemReserved of KubeletConfiguration.
	Kube, System map[string]string
	// EvictionHard are the hard eviction thresholds. Only memory.available and
	// nodefs.available count.
	EvictionHard map[string]string
}

// Allocatable returns the node allocatable of a capacity: the capacity minus the
// reservations and the hard eviction thresholds. Huge pages are also subtracted
// from the memory that they were allocated from (KEP node-allocatable,
// pkg/kubelet/cm/node_container_manager_linux.go and MachineInfo in
// pkg/kubelet/nodestatus/setters.go). A result below zero is zero. It fails on a
// quantity that cannot be parsed, and on a reservation above the capacity.
func Allocatable(capacity v1.ResourceList, r Reserved) (v1.ResourceList, error) {
	out, err := reserve(capacity, r)
	if err != nil {
		return nil, err
	}
	for signal, name := range map[string]v1.ResourceName{
		"memory.available": v1.ResourceMemory,
		"nodefs.available": v1.ResourceEphemeralStorage,
	} {
		text, ok := r.EvictionHard[signal]
		if !ok {
			continue
		}
		q, err := threshold(text, capacity[name])
		if err != nil {
			return nil, fmt.Errorf("evictionHard[%s] %q: %w", signal, text, err)
		}
		subtract(out, name, q)
	}
	for name, q := range capacity {
		if pod.IsHugePages(name) {
			subtract(out, v1.ResourceMemory, q)
		}
	}
	return out, nil
}

// reserve subtracts the reservations from a capacity. It fails if they exceed it, as the
// kubelet (validateNodeAllocatable in pkg/kubelet/cm/node_container_manager_linux.go).
func reserve(capacity v1.ResourceList, r Reserved) (v1.ResourceList, error) {
	out := capacity.DeepCopy()
	for _, reserved := range []struct {
		field string
		list  map[string]string
	}{{"kubeReserved", r.Kube}, {"systemReserved", r.System}} {
		for name, text := range reserved.list {
			q, err := resource.ParseQuantity(text)
			if err != nil {
				return nil, fmt.Errorf("%s[%s] %q: %w", reserved.field, name, text, err)
			}
			if left, ok := out[v1.ResourceName(name)]; ok {
				left.Sub(q)
				out[v1.ResourceName(name)] = left
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(out)) {
		if left := out[name]; left.Sign() < 0 {
			has := capacity[name]
			reserved := has.DeepCopy()
			reserved.Sub(left)
			return nil, fmt.Errorf("%s of %s are reserved, but the capacity is %s; lower kubeReserved, systemReserved or reservedSystemCPUs", reserved.String(), name, has.String())
		}
	}
	return out, nil
}

// subtract subtracts q from a resource, down to zero.
func subtract(list v1.ResourceList, name v1.ResourceName, q resource.Quantity) {
	have, ok := list[name]
	if !ok {
		return
	}
	have.Sub(q)
	if have.Sign() < 0 {
		have = *resource.NewQuantity(0, have.Format)
	}
	list[name] = have
}

// threshold parses a quantity or a percentage of the capacity. A percentage is
// rounded as the kubelet rounds it, in 32-bit floats (parsePercentage in
// pkg/kubelet/eviction/helpers.go), so that both report the same number of bytes
// for the same node.
func threshold(text string, capacity resource.Quantity) (resource.Quantity, error) {
	percent, ok := strings.CutSuffix(text, "%")
	if !ok {
		return resource.ParseQuantity(text)
	}
	p, err := strconv.ParseFloat(percent, 32)
	if err != nil || !(p >= 0 && p <= 100) {
		return resource.Quantity{}, fmt.Errorf("not a percentage from 0 to 100")
	}
	return *resource.NewQuantity(int64(float64(capacity.Value())*float64(float32(p)/100)), resource.BinarySI), nil
}

// Labels returns the labels that the node sets on itself: its name and platform,
// with the current keys and those from before Kubernetes 1.14, and over them the
// configured labels (initialNode in pkg/kubelet/kubelet_node_status.go).
func Labels(hostname string, configured map[string]string) map[string]string {
	labels := map[string]string{
		v1.LabelHostname:      hostname,
		v1.LabelOSStable:      runtime.GOOS,
		v1.LabelArchStable:    runtime.GOARCH,
		kubeletapis.LabelOS:   runtime.GOOS,
		kubeletapis.LabelArch: runtime.GOARCH,
	}
	maps.Copy(labels, configured)
	return labels
}

// ResourcePIDs is the resource name of process IDs in a reservation
// (pkg/kubelet/stats/pidlimit).
const ResourcePIDs v1.ResourceName = "pid"

// EnforcedAllocatable returns the limits of all pods together: the capacity minus the
// reservations, process IDs included. The eviction thresholds are not subtracted,
// so that eviction acts before the limit is reached
// (getNodeAllocatableInternalAbsolute in
// pkg/kubelet/cm/node_container_manager_linux.go). It fails on a quantity that cannot be
// parsed, and on a reservation above the capacity.
func EnforcedAllocatable(capacity v1.ResourceList, r Reserved, roots Roots) (v1.ResourceList, error) {
	all := v1.ResourceList{}
	maps.Copy(all, capacity)
	if n := maxTasks(roots); n > 0 {
		all[ResourcePIDs] = *resource.NewQuantity(n, resource.DecimalSI)
	}
	return reserve(all, r)
}

// Swap returns the size of all swap areas in bytes, or 0 if /proc does not report
// it.
func Swap(r Roots) int64 {
	m, _ := readMeminfo(r)
	return int64(m.SwapTotal)
}

// maxTasks returns how many tasks may exist, or 0 if that is unknown.
func maxTasks(r Roots) (most int64) {
	for _, file := range []string{"pid_max", "threads-max"} {
		if n := positive(readSmall(filepath.Join(r.proc(), "sys/kernel", file))); n > 0 && (most == 0 || n < most) {
			most = n
		}
	}
	return most
}
