package pod

import (
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation"
)

// Requests returns the requests of the whole pod, its overhead included: for each
// resource the sum of its main containers and sidecars, or the sum of one init
// container and the sidecars before it if that is more. A pod-level request
// replaces the sum of its resource (PodRequests in
// k8s.io/component-helpers/resource; KEP-753, KEP-2837). The caller owns the list.
func Requests(p *v1.Pod) v1.ResourceList {
	out := sum(&p.Spec, func(r *v1.ResourceRequirements) v1.ResourceList { return r.Requests })
	if own := p.Spec.Resources; own != nil {
		replace(out, own.Requests)
	}
	addResourceList(out, p.Spec.Overhead)
	return out
}

// Limits returns the limits of the whole pod, by the same sums. The overhead is
// added to limits that are not zero (PodLimits). A container without a limit
// counts as 0, so the sum is effective only if HasLimit is true. The caller owns
// the list.
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

// HasLimit reports whether Limits bounds the pod's use of a resource: the pod has a
// pod-level limit, or each container has a limit (ResourceConfigForPod in
// pkg/kubelet/cm/helpers_linux.go). An init container without a limit counts as
// limited if a sidecar before it has a limit.
func HasLimit(p *v1.Pod, name v1.ResourceName) bool {
	if own := p.Spec.Resources; own != nil {
		if _, ok := positive(own.Limits, name); ok && IsSupportedPodLevelResource(name) {
			return true
		}
	}
	sidecar := false
	for c, kind := range Containers(&p.Spec) {
		_, limited := positive(c.Resources.Limits, name)
		if !limited && (kind == Main || kind == Init && !sidecar) {
			return false
		}
		sidecar = sidecar || limited && IsRestartableInit(c)
	}
	return true
}

// IsSupportedPodLevelResource reports whether a resource can be set at pod level: cpu, memory and
// huge pages (KEP-2837).
func IsSupportedPodLevelResource(name v1.ResourceName) bool {
	return name == v1.ResourceCPU || name == v1.ResourceMemory || IsHugePages(name)
}

// PodLevelResources returns the pod-level resources (KEP-2837), or nil if none applies.
func PodLevelResources(p *v1.Pod) *v1.ResourceRequirements {
	if own := p.Spec.Resources; own != nil {
		for _, list := range [...]v1.ResourceList{own.Requests, own.Limits} {
			for name := range list {
				if IsSupportedPodLevelResource(name) {
					return own
				}
			}
		}
	}
	return nil
}

// IsHugePages reports whether a resource is a size of huge pages.
func IsHugePages(name v1.ResourceName) bool {
	return strings.HasPrefix(string(name), v1.ResourceHugePagesPrefix)
}

// IsNativeResource reports whether a resource is one of Kubernetes' own: its name has no
// domain, or kubernetes.io (IsNativeResource in pkg/apis/core/v1/helper).
func IsNativeResource(name v1.ResourceName) bool {
	return !strings.Contains(string(name), "/") || strings.Contains(string(name), v1.ResourceDefaultNamespacePrefix)
}

// IsExtendedResource reports whether a resource is an extended resource
// (IsExtendedResourceName in pkg/apis/core/v1/helper).
func IsExtendedResource(name v1.ResourceName) bool {
	return !IsNativeResource(name) && !strings.HasPrefix(string(name), v1.DefaultResourceRequestsPrefix) &&
		len(validation.IsQualifiedName(v1.DefaultResourceRequestsPrefix+string(name))) == 0
}

// sum returns, for each resource, the larger of the sum of all main containers and
// sidecars, and the peak while the init containers run.
func sum(s *v1.PodSpec, of func(*v1.ResourceRequirements) v1.ResourceList) v1.ResourceList {
	out, sidecars, most := v1.ResourceList{}, v1.ResourceList{}, v1.ResourceList{}
	for i := range s.Containers {
		addResourceList(out, of(&s.Containers[i].Resources))
	}
	for i := range s.InitContainers {
		c := &s.InitContainers[i]
		list := of(&c.Resources)
		if IsRestartableInit(c) {
			addResourceList(out, list)
			addResourceList(sidecars, list)
			maxResourceList(most, sidecars)
			continue
		}
		with := sidecars.DeepCopy()
		addResourceList(with, list)
		maxResourceList(most, with)
	}
	maxResourceList(out, most)
	return out
}

func addResourceList(list, more v1.ResourceList) {
	for name, q := range more {
		sum := list[name].DeepCopy()
		sum.Add(q)
		list[name] = sum
	}
}

func maxResourceList(list, least v1.ResourceList) {
	for name, q := range least {
		if has, ok := list[name]; !ok || q.Cmp(has) > 0 {
			list[name] = q.DeepCopy()
		}
	}
}

func replace(list, own v1.ResourceList) {
	for name, q := range own {
		if IsSupportedPodLevelResource(name) {
			list[name] = q.DeepCopy()
		}
	}
}

// QOSClass returns the pod's QoS class by the rules of pkg/apis/core/v1/helper/qos:
// Guaranteed if every container has limits of cpu and memory and requests equal to
// them, BestEffort if no container has a request or limit of either, else
// Burstable. If pod-level resources are set, even to empty, only they count.
func QOSClass(p *v1.Pod) v1.PodQOSClass {
	if r := p.Spec.Resources; r != nil {
		return classOf([]v1.ResourceRequirements{*r})
	}
	all := make([]v1.ResourceRequirements, 0, len(p.Spec.InitContainers)+len(p.Spec.Containers))
	for c, kind := range Containers(&p.Spec) {
		if kind != Ephemeral {
			all = append(all, c.Resources)
		}
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

// SysctlName returns a sysctl's name with dots as separators and with slashes in
// place of the dots within a part, as in sysctl.d(5):
// net/ipv4/conf/eno2.100/rp_filter is net.ipv4.conf.eno2/100.rp_filter. The first
// dot or slash in a name is its separator.
func SysctlName(name string) string {
	if i := strings.IndexAny(name, "./"); i < 0 || name[i] == '.' {
		return name
	}
	return strings.NewReplacer(".", "/", "/", ".").Replace(name)
}
