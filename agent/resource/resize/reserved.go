package resize

import (
	v1 "k8s.io/api/core/v1"

	"github.com/tinylet/tinylet/agent/pod"
)

// Reserved returns the pod as it counts for the admission of others: for each
// container the larger of its allocation and the actual resources in its status. A
// shrinking pod frees nothing before it has shrunk. p must have its allocation
// applied. The result is p or shares with it what it does not replace (PodRequests
// with UseStatusResources in k8s.io/component-helpers/resource; of the init
// containers only sidecars).
func Reserved(p *v1.Pod) *v1.Pod {
	larger := Allocation{Containers: map[string]v1.ResourceRequirements{}, Pod: p.Spec.Resources}
	for c, kind := range pod.Containers(&p.Spec) {
		s := pod.FindContainerStatus(&p.Status, c.Name)
		if kind == pod.Ephemeral || kind == pod.Init && !pod.IsRestartableInit(c) || s == nil || s.Resources == nil {
			continue
		}
		r := c.Resources
		r.Requests = maxEach(r.Requests, s.Resources.Requests, s.AllocatedResources)
		larger.Containers[c.Name] = r
	}
	if own := p.Spec.Resources; own != nil && p.Status.Resources != nil {
		r := *own
		// The status is that of the whole pod. Only pod-level resources replace the
		// sum of the containers.
		r.Requests = maxEach(r.Requests, selectNames(p.Status.Resources.Requests, r.Requests), selectNames(p.Status.AllocatedResources, r.Requests))
		larger.Pod = &r
	}
	return larger.Apply(p)
}

// maxEach returns the maximum of each resource. The result may be one of the lists.
func maxEach(list v1.ResourceList, others ...v1.ResourceList) v1.ResourceList {
	out, own := list, false
	for _, other := range others {
		for name, q := range other {
			if has, ok := out[name]; ok && q.Cmp(has) <= 0 {
				continue
			}
			if !own {
				if out, own = list.DeepCopy(), true; out == nil {
					out = v1.ResourceList{}
				}
			}
			out[name] = q
		}
	}
	return out
}

func selectNames(list, names v1.ResourceList) v1.ResourceList {
	out := v1.ResourceList{}
	for name := range names {
		if q, ok := list[name]; ok {
			out[name] = q
		}
	}
	return out
}
