package admission

import (
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tinylet/tinylet/agent/pod"
)

// need is the amount of a resource that has to be freed.
type need struct {
	name   v1.ResourceName
	amount int64
}

// preempt chooses the pods to preempt for a critical one, as the kubelet does
// (pkg/kubelet/preemption): it minimizes the number of Guaranteed pods, then of
// Burstable, then of BestEffort ones, and takes the best fitting pods of each QoS
// class.
func preempt(p *v1.Pod, others []*v1.Pod, short []insufficientResource) *Rejection {
	r := short[0].rejection()
	var needs []need
	for _, s := range short {
		needs = append(needs, need{s.name, s.requested - (s.capacity - s.used)})
	}
	victims, err := podsToPreempt(p, others, needs)
	if err != nil {
		return &Rejection{
			Reason: ReasonUnexpected,
			Message: "Unexpected error while attempting to recover from admission failure: " +
				"preemption: error finding a set of pods to preempt: " + err.Error(),
		}
	}
	for _, v := range victims {
		r.Preempt = append(r.Preempt, v.uid)
	}
	return r
}

// candidate is a pod that may be preempted, and the resources that it would free.
type candidate struct {
	uid                types.UID
	requests, overhead v1.ResourceList
}

func podsToPreempt(p *v1.Pod, others []*v1.Pod, needs []need) ([]candidate, error) {
	byClass := map[v1.PodQOSClass][]candidate{}
	for _, other := range others {
		if other.UID != p.UID && preemptable(p, other) {
			class := pod.QOSClass(other)
			byClass[class] = append(byClass[class], candidate{other.UID, pod.Requests(other), other.Spec.Overhead})
		}
	}
	guaranteed, burstable, bestEffort := byClass[v1.PodQOSGuaranteed], byClass[v1.PodQOSBurstable], byClass[v1.PodQOSBestEffort]
	if left := remainingNeeds(needs, bestEffort, burstable, guaranteed); len(left) > 0 {
		return nil, noVictimsError(left)
	}
	guaranteed, err := podsToPreemptByDistance(guaranteed, remainingNeeds(needs, bestEffort, burstable))
	if err != nil {
		return nil, err
	}
	burstable, err = podsToPreemptByDistance(burstable, remainingNeeds(needs, bestEffort, guaranteed))
	if err != nil {
		return nil, err
	}
	bestEffort, err = podsToPreemptByDistance(bestEffort, remainingNeeds(needs, burstable, guaranteed))
	if err != nil {
		return nil, err
	}
	return slices.Concat(bestEffort, burstable, guaranteed), nil
}

// preemptable reports whether p may preempt other.
func preemptable(p, other *v1.Pod) bool {
	if pod.IsCritical(p) && !pod.IsCritical(other) {
		return true
	}
	return p.Spec.Priority != nil && other.Spec.Priority != nil && *p.Spec.Priority > *other.Spec.Priority
}

// remainingNeeds returns the needs that remain once the pods have ended.
func remainingNeeds(needs []need, gone ...[]candidate) []need {
	var left []need
	for _, n := range needs {
		for _, pods := range gone {
			for i := range pods {
				n.amount -= min(pods[i].freedAmount(n.name), n.amount)
			}
		}
		if n.amount > 0 {
			left = append(left, n)
		}
	}
	return left
}

// podsToPreemptByDistance chooses pods one by one until the needs are met: each time the pod that
// leaves the least to free, and among equal ones the smaller. It returns an error
// if all pods together do not meet the needs.
func podsToPreemptByDistance(pods []candidate, needs []need) ([]candidate, error) {
	var chosen []candidate
	pods = slices.Clone(pods)
	for len(needs) > 0 {
		if len(pods) == 0 {
			return nil, noVictimsError(needs)
		}
		best, bestDistance := 0, pods[0].distance(needs)
		for i := 1; i < len(pods); i++ {
			d := pods[i].distance(needs)
			if d < bestDistance || (d == bestDistance && pods[i].smaller(&pods[best])) {
				best, bestDistance = i, d
			}
		}
		needs = remainingNeeds(needs, pods[best:best+1])
		chosen = append(chosen, pods[best])
		pods[best] = pods[len(pods)-1]
		pods = pods[:len(pods)-1]
	}
	return chosen, nil
}

// distance returns the sum, over all needs, of the squared fraction of the need
// that remains once the pod has ended.
func (c *candidate) distance(needs []need) float64 {
	total := 0.0
	for _, n := range needs {
		if open := n.amount - min(c.freedAmount(n.name), n.amount); open > 0 {
			part := float64(open) / float64(n.amount)
			total += part * part
		}
	}
	return total
}

// smaller reports whether the pod requests less memory, or as much memory and
// less CPU. It returns true if both are equal.
func (c *candidate) smaller(other *candidate) bool {
	for _, name := range []v1.ResourceName{v1.ResourceMemory, v1.ResourceCPU} {
		if x, y := c.freedAmount(name), other.freedAmount(name); x != y {
			return x < y
		}
	}
	return true
}

// freedAmount returns the amount that the pod's end frees. Overhead alone, without a
// request of the containers, does not count.
func (c *candidate) freedAmount(name v1.ResourceName) int64 {
	if name == v1.ResourcePods {
		return 1
	}
	all := amount(c.requests, name)
	if all == amount(c.overhead, name) {
		return 0
	}
	return all
}

func noVictimsError(needs []need) error {
	var b strings.Builder
	for _, n := range needs {
		fmt.Fprintf(&b, "(res: %v, q: %d), ", n.name, n.amount)
	}
	return fmt.Errorf("no set of running pods found to reclaim resources: [%s]", b.String())
}
