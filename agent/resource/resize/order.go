package resize

import (
	"cmp"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/tinylet/tinylet/agent/pod"
)

// Pending is a resize that is not allocated yet.
type Pending struct {
	Pod        *v1.Pod // from the API server
	Allocation Allocation
	// Since is the last transition of the condition PodResizePending. Zero means that
	// the resize was never decided; such a resize sorts last.
	Since time.Time
}

// Sort sorts the resizes in the order in which to decide them: those that do not
// increase a request, then by priority, Guaranteed before others, then the longest
// wait first (sortPendingResizes in pkg/kubelet/allocation/allocation_manager.go).
// The sort is stable. Each allocation changes the room for the next one.
func Sort(list []Pending) {
	slices.SortStableFunc(list, func(a, b Pending) int {
		grows := a.grows()
		if d := cmp.Compare(boolToInt(grows), boolToInt(b.grows())); d != 0 || !grows {
			return d
		}
		return cmp.Or(
			cmp.Compare(priority(b.Pod), priority(a.Pod)),
			cmp.Compare(boolToInt(!guaranteed(a.Pod)), boolToInt(!guaranteed(b.Pod))),
			cmp.Compare(boolToInt(a.Since.IsZero()), boolToInt(b.Since.IsZero())),
			a.Since.Compare(b.Since),
		)
	})
}

// grows reports whether the pod's total request of cpu or memory increases.
func (p *Pending) grows() bool {
	desired, given := pod.Requests(p.Pod), pod.Requests(p.Allocation.Apply(p.Pod))
	return more(desired, given, v1.ResourceCPU) || more(desired, given, v1.ResourceMemory)
}

func more(a, b v1.ResourceList, name v1.ResourceName) bool {
	q := a[name]
	return q.Cmp(b[name]) > 0
}

func guaranteed(p *v1.Pod) bool { return pod.QOSClass(p) == v1.PodQOSGuaranteed }

func priority(p *v1.Pod) int32 { return ptr.Deref(p.Spec.Priority, 0) }

func boolToInt(b bool) int {
	if b {
		return 1
	}
	return 0
}
