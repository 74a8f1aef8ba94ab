package pod

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// QOSClass returns the pod's QoS class by the rules of pkg/apis/core/v1/helper/qos:
// Guaranteed if every container has limits of cpu and memory and requests equal to
// them, BestEffort if no container has a request or limit of either, else
// Burstable. If pod-level resources are set, even to empty, only they count.
func QOSClass(p *v1.Pod) v1.PodQOSClass {
	if r := p.Spec.Resources; r != nil {
		return classOf([]v1.ResourceRequirements{*r})
	}
	all := make([]v1.ResourceRequirements, 0, len(p.Spec.InitContainers)+len(p.Spec.Containers))
	for i := range p.Spec.InitContainers {
		all = append(all, p.Spec.InitContainers[i].Resources)
	}
	for i := range p.Spec.Containers {
		all = append(all, p.Spec.Containers[i].Resources)
	}
	return classOf(all)
}

func classOf(all []v1.ResourceRequirements) v1.PodQOSClass {
	guaranteed, asks := true, false
	for i := range all {
		for _, name := range []v1.ResourceName{v1.ResourceCPU, v1.ResourceMemory} {
			limit, limited := positive(all[i].Limits, name)
			_, requested := positive(all[i].Requests, name)
			asks = asks || limited || requested
			// An explicit request of zero counts as a request.
			if request, given := all[i].Requests[name]; !limited || given && request.Cmp(limit) != 0 {
				guaranteed = false
			}
		}
	}
	switch {
	case !asks:
		return v1.PodQOSBestEffort
	case guaranteed:
		return v1.PodQOSGuaranteed
	default:
		return v1.PodQOSBurstable
	}
}

func positive(list v1.ResourceList, name v1.ResourceName) (resource.Quantity, bool) {
	q, ok := list[name]
	return q, ok && q.Sign() > 0
}
