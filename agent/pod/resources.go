package pod

import (
	"strings"

	v1 "k8s.io/api/core/v1"
)

// Requests are what the pod asks for as a whole, its overhead included: what
// its main containers and sidecars ask for together, or one init container
// with the sidecars before it where that is more; the pod's own requests
// stand for the sum of each resource that they name (PodRequests in
// k8s.io/component-helpers/resource; KEP-753, KEP-2837). The list is the
// caller's.
func Requests(p *v1.Pod) v1.ResourceList {
	out := sum(&p.Spec, func(r *v1.ResourceRequirements) v1.ResourceList { return r.Requests })
	if own := p.Spec.Resources; own != nil {
		replace(out, own.Requests)
	}
	add(out, p.Spec.Overhead)
	return out
}

// Limits are the pod's limits as a whole, by the same sums, with its overhead
// where there is a limit that is not zero (PodLimits). A container without a
// limit counts as none: Limited says whether the limit holds.
func Limits(p *v1.Pod) v1.ResourceList {
	out := sum(&p.Spec, func(r *v1.ResourceRequirements) v1.ResourceList { return r.Limits })
	if own := p.Spec.Resources; own != nil {
		replace(out, own.Limits)
	}
	for name, more := range p.Spec.Overhead {
		if limit, ok := out[name]; ok && !limit.IsZero() {
			limit.Add(more)
			out[name] = limit
		}
	}
	return out
}

// Limited says whether the pod's use of a resource ends at its Limits: the
// pod has a limit of its own, or each container has one
// (ResourceConfigForPod in pkg/kubelet/cm/helpers_linux.go). An init
// container without a limit counts as limited if a sidecar before it is.
func Limited(p *v1.Pod, name v1.ResourceName) bool {
	if own := p.Spec.Resources; own != nil {
		if _, ok := positive(own.Limits, name); ok && PodLevel(name) {
			return true
		}
	}
	sidecar := false
	for i := range p.Spec.InitContainers {
		c := &p.Spec.InitContainers[i]
		_, limited := positive(c.Resources.Limits, name)
		if !limited && !sidecar {
			return false
		}
		sidecar = sidecar || limited && IsRestartableInit(c)
	}
	for i := range p.Spec.Containers {
		if _, limited := positive(p.Spec.Containers[i].Resources.Limits, name); !limited {
			return false
		}
	}
	return true
}

// PodLevel says whether a pod can have a resource as a whole: cpu, memory and
// huge pages (KEP-2837).
func PodLevel(name v1.ResourceName) bool {
	return name == v1.ResourceCPU || name == v1.ResourceMemory || strings.HasPrefix(string(name), v1.ResourceHugePagesPrefix)
}

// sum is what the containers need together, or at the worst moment of their
// start.
func sum(s *v1.PodSpec, of func(*v1.ResourceRequirements) v1.ResourceList) v1.ResourceList {
	out, sidecars, most := v1.ResourceList{}, v1.ResourceList{}, v1.ResourceList{}
	for i := range s.Containers {
		add(out, of(&s.Containers[i].Resources))
	}
	for i := range s.InitContainers {
		c := &s.InitContainers[i]
		list := of(&c.Resources)
		if IsRestartableInit(c) {
			add(out, list)
			add(sidecars, list)
			raise(most, sidecars)
			continue
		}
		with := sidecars.DeepCopy()
		add(with, list)
		raise(most, with)
	}
	raise(out, most)
	return out
}

func add(list, more v1.ResourceList) {
	for name, q := range more {
		sum := list[name].DeepCopy()
		sum.Add(q)
		list[name] = sum
	}
}

func raise(list, least v1.ResourceList) {
	for name, q := range least {
		if has, ok := list[name]; !ok || q.Cmp(has) > 0 {
			list[name] = q.DeepCopy()
		}
	}
}

func replace(list, own v1.ResourceList) {
	for name, q := range own {
		if PodLevel(name) {
			list[name] = q.DeepCopy()
		}
	}
}
