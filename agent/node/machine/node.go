// Package machine owns what the node has and is called: its capacity, what of
// it pods may use, its labels, and what identifies the machine. It reads
// /proc, /sys and a few files of the distribution when it is asked, and keeps
// nothing.
package machine

import (
	"fmt"
	"maps"
	"runtime"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	kubeletapis "k8s.io/kubelet/pkg/apis"
)

// Roots are where the kernel's and the pods' files are.
type Roots struct {
	Proc string // "" is /proc
	Sys  string // "" is /sys
	// Root holds etc, usr and var; "" is /.
	Root string
	// Storage is a directory on the file system that holds the pods' volumes
	// and logs; "" counts no ephemeral storage.
	Storage string
}

func (r Roots) proc() string {
	if r.Proc == "" {
		return "/proc"
	}
	return r.Proc
}

func (r Roots) sys() string {
	if r.Sys == "" {
		return "/sys"
	}
	return r.Sys
}

func (r Roots) root() string {
	if r.Root == "" {
		return "/"
	}
	return r.Root
}

// Capacity is all that the node has: CPUs, memory in bytes, huge pages,
// ephemeral storage in bytes, and how many pods it takes. What cannot be read
// is left out.
func Capacity(r Roots, maxPods int32) v1.ResourceList {
	list := v1.ResourceList{
		v1.ResourceCPU:  *resource.NewQuantity(int64(runtime.NumCPU()), resource.DecimalSI),
		v1.ResourcePods: *resource.NewQuantity(int64(maxPods), resource.DecimalSI),
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

// Reserved is what of the node pods may not use.
type Reserved struct {
	// Kube and System are those of KubeletConfiguration.
	Kube, System map[string]string
	// EvictionHard are the thresholds at which pods are evicted:
	// memory.available and nodefs.available count.
	EvictionHard map[string]string
}

// Allocatable is what pods may use of a capacity: what is reserved and what
// eviction keeps free is taken off, and huge pages are taken off the memory
// that they were cut from (KEP node-allocatable,
// pkg/kubelet/cm/node_container_manager_linux.go and MachineInfo in
// pkg/kubelet/nodestatus/setters.go). It fails on a quantity that cannot be
// read.
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
		take(out, name, q)
	}
	for name, q := range capacity {
		if strings.HasPrefix(string(name), v1.ResourceHugePagesPrefix) {
			take(out, v1.ResourceMemory, q)
		}
	}
	return out, nil
}

// reserve takes what is reserved off a capacity.
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
			take(out, v1.ResourceName(name), q)
		}
	}
	return out, nil
}

// take subtracts down to zero.
func take(list v1.ResourceList, name v1.ResourceName, q resource.Quantity) {
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

// threshold is a quantity, or a percentage of the capacity, rounded as the
// kubelet rounds it, which reckons in 32 bits (parsePercentage in
// pkg/kubelet/eviction/helpers.go): the same node tells the same bytes,
// whichever of the two runs on it.
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

// Labels are those that the node gives itself: its name and platform, in the
// keys of today and of before Kubernetes 1.14, and on top of them the
// configured ones (initialNode in pkg/kubelet/kubelet_node_status.go).
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
