package resize

import (
	"cmp"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/tinylet/tinylet/agent/pod"
)

// Pending is a resize that was not allocated yet.
type Pending struct {
	Pod        *v1.Pod // as the API server has it
	Allocation Allocation
	// Since is the last transition of the condition PodResizePending; zero
	// for one that was never looked at, which comes last.
	Since time.Time
}

// Sort puts the resizes in the order in which they are tried: those that ask
// for no more than they have, then by priority, Guaranteed before others, and
// those that wait longest (sortPendingResizes in
// pkg/kubelet/allocation/allocation_manager.go). What is alike keeps its
// order. Each that is allocated changes the room of the next.
func Sort(list []Pending) {
	slices.SortStableFunc(list, func(a, b Pending) int {
		grows := a.grows()
		if d := cmp.Compare(number(grows), number(b.grows())); d != 0 || !grows {
			return d
		}
		return cmp.Or(
			cmp.Compare(priority(b.Pod), priority(a.Pod)),
			cmp.Compare(number(!guaranteed(a.Pod)), number(!guaranteed(b.Pod))),
			cmp.Compare(number(a.Since.IsZero()), number(b.Since.IsZero())),
			a.Since.Compare(b.Since),
		)
	})
}

// grows says whether the pod as a whole asks for more cpu or memory.
func (p *Pending) grows() bool {
	wanted, given := pod.Requests(p.Pod), pod.Requests(p.Allocation.Apply(p.Pod))
	return more(wanted, given, v1.ResourceCPU) || more(wanted, given, v1.ResourceMemory)
}

func more(a, b v1.ResourceList, name v1.ResourceName) bool {
	q := a[name]
	return q.Cmp(b[name]) > 0
}

func guaranteed(p *v1.Pod) bool { return pod.QoS(p) == v1.PodQOSGuaranteed }

func priority(p *v1.Pod) int32 {
	if p.Spec.Priority == nil {
		return 0
	}
	return *p.Spec.Priority
}

func number(b bool) int {
	if b {
		return 1
	}
	return 0
}
