package admission

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/tinylet/tinylet/agent/node/nodeinfo"
	"github.com/tinylet/tinylet/agent/pod"
)

// insufficientResource is a resource of which a pod requests more than the other pods
// leave. The unit is millicores for CPU, and bytes or a count for other resources.
type insufficientResource struct {
	name                      v1.ResourceName
	requested, used, capacity int64
}

func (s *insufficientResource) rejection() *Rejection {
	return &Rejection{
		Reason: reasonOutOf + string(s.name),
		Message: fmt.Sprintf("Node didn't have enough resource: %s, requested: %d, used: %d, capacity: %d",
			s.name, s.requested, s.used, s.capacity),
	}
}

// insufficientResources lists the resources that the pod requests and that the other pods
// do not leave, in the kubelet's order: pods, cpu, memory, ephemeral storage,
// then the others by name.
func insufficientResources(p *v1.Pod, node *nodeinfo.Admission, others []*v1.Pod) []insufficientResource {
	requests := pod.Requests(p)
	names := accountedResources(requests)
	used := make([]int64, len(names))
	count := int64(0)
	for _, other := range others {
		if other.UID == p.UID {
			continue
		}
		count++
		if len(names) > 0 {
			list := pod.Requests(other)
			for i, name := range names {
				used[i] = pod.AddSaturating(used[i], amount(list, name))
			}
		}
	}
	var short []insufficientResource
	if count+1 > int64(node.MaxPods) {
		short = append(short, insufficientResource{v1.ResourcePods, 1, count, int64(node.MaxPods)})
	}
	for i, name := range names {
		requested, capacity := amount(requests, name), amount(node.Allocatable, name)
		if _, known := node.Allocatable[name]; requested == 0 || (pod.IsExtendedResource(name) && !pod.IsStatic(p) && !known) {
			continue
		}
		if requested > capacity-used[i] {
			short = append(short, insufficientResource{name, requested, used[i], capacity})
		}
	}
	return short
}

// accountedResources returns the resources of a list that nodes account for, in the
// kubelet's order.
func accountedResources(list v1.ResourceList) []v1.ResourceName {
	names := make([]v1.ResourceName, 0, len(list))
	for name := range list {
		if isAccounted(name) {
			names = append(names, name)
		}
	}
	slices.SortFunc(names, func(a, b v1.ResourceName) int {
		return cmp.Or(resourceOrder(a)-resourceOrder(b), strings.Compare(string(a), string(b)))
	})
	return names
}

// ordered are the resources that precede the others, in the kubelet's order.
var ordered = []v1.ResourceName{v1.ResourceCPU, v1.ResourceMemory, v1.ResourceEphemeralStorage}

// resourceOrder returns a resource's position in the kubelet's order.
func resourceOrder(name v1.ResourceName) int {
	if i := slices.Index(ordered, name); i >= 0 {
		return i
	}
	return len(ordered)
}

// isAccounted reports whether nodes account for a resource: cpu, memory, ephemeral
// storage, huge pages, and all with a domain in their names.
func isAccounted(name v1.ResourceName) bool {
	return slices.Contains(ordered, name) || pod.IsHugePages(name) || strings.Contains(string(name), v1.ResourceDefaultNamespacePrefix) ||
		strings.HasPrefix(string(name), v1.ResourceAttachableVolumesPrefix) || pod.IsExtendedResource(name)
}

// amount returns a quantity in the unit in which it is compared: CPU in
// millicores, others in whole units rounded up. It is never negative. It saturates where
// the quantity's own methods would overflow.
func amount(list v1.ResourceList, name v1.ResourceName) int64 {
	const most = math.MaxInt64 / 1000
	q := list[name]
	switch {
	case q.CmpInt64(most) >= 0:
		return most
	case name == v1.ResourceCPU:
		return max(q.MilliValue(), 0)
	}
	return max(q.Value(), 0)
}
