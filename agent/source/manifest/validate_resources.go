package manifest

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/tinylet/tinylet/agent/pod"
)

// podResources checks the pod-level resources, which bound those of the
// containers (KEP-2837).
func (c *checks) podResources(spec *v1.PodSpec, path *field.Path) {
	own := spec.Resources
	if own == nil {
		return
	}
	c.forbid(len(own.Claims) > 0, path.Child("claims"), "claims may not be set for Resources at pod-level")
	c.resources(own, podResource, path)
	needed := pod.Requests(containersOf(spec))
	for _, name := range slices.Sorted(maps.Keys(needed)) {
		sum := needed[name]
		if request, ok := own.Requests[name]; ok && sum.Cmp(request) > 0 {
			c.add(field.Invalid(path.Child("requests").Key(string(name)), request.String(),
				fmt.Sprintf("must be greater than or equal to aggregate container requests of %s", sum.String())))
		}
	}
	for i := range spec.Containers {
		limits := spec.Containers[i].Resources.Limits
		for _, name := range slices.Sorted(maps.Keys(limits)) {
			limit := limits[name]
			if most, ok := own.Limits[name]; ok && limit.Cmp(most) > 0 {
				c.add(field.Invalid(path.Root().Child("containers").Index(i).Child("resources", "limits").Key(string(name)), limit.String(),
					fmt.Sprintf("must be less than or equal to pod limits of %s", most.String())))
			}
		}
	}
}

// resources checks requests and limits, and each request against its limit.
func (c *checks) resources(r *v1.ResourceRequirements, valid func(v1.ResourceName) string, path *field.Path) {
	c.quantities(r.Limits, valid, path.Child("limits"))
	c.quantities(r.Requests, valid, path.Child("requests"))
	c.hugePages(path, r.Limits, r.Requests)
	for _, name := range slices.Sorted(maps.Keys(r.Requests)) {
		request, at := r.Requests[name], path.Child("requests").Key(string(name))
		limit, limited := r.Limits[name]
		switch {
		case !limited && !overcommits(name):
			c.add(field.Required(path.Child("limits").Key(string(name)), "Limit must be set for non overcommitable resources"))
		case limited && !overcommits(name) && request.Cmp(limit) != 0:
			c.add(field.Invalid(at, request.String(), fmt.Sprintf("must be equal to %s limit of %s", name, limit.String())))
		case limited && request.Cmp(limit) > 0:
			c.add(field.Invalid(at, request.String(), fmt.Sprintf("must be less than or equal to %s limit of %s", name, limit.String())))
		}
	}
}

// overhead checks the resources that a pod needs in addition to its containers'.
func (c *checks) overhead(list v1.ResourceList, path *field.Path) {
	c.quantities(list, containerResource, path)
	c.hugePages(path, list)
}

// hugePages rejects huge pages without CPU or memory.
func (c *checks) hugePages(path *field.Path, lists ...v1.ResourceList) {
	compute, huge := false, false
	for _, list := range lists {
		for name := range list {
			compute = compute || name == v1.ResourceCPU || name == v1.ResourceMemory
			huge = huge || pod.IsHugePages(name)
		}
	}
	c.forbid(huge && !compute, path, "HugePages require cpu or memory")
}

func (c *checks) quantities(list v1.ResourceList, valid func(v1.ResourceName) string, path *field.Path) {
	for _, name := range slices.Sorted(maps.Keys(list)) {
		at, quantity := path.Key(string(name)), list[name]
		c.name(at, string(name), validation.IsQualifiedName)
		message := valid(name)
		c.invalid(message != "", at, string(name), message)
		switch {
		case quantity.Sign() < 0:
			c.add(field.Invalid(at, quantity.String(), "must be greater than or equal to 0"))
		case !overcommits(name) && quantity.MilliValue()%1000 != 0:
			c.add(field.Invalid(at, quantity.String(), "must be an integer"))
		case pod.IsHugePages(name) && !fillsPages(name, quantity):
			c.add(field.Invalid(at, quantity.String(), fmt.Sprintf("%s is not positive integer multiple of %s", quantity.String(), name)))
		}
	}
}

// containerResource returns the error for a container's resource name, or "".
func containerResource(name v1.ResourceName) string {
	switch {
	case name == v1.ResourceCPU, name == v1.ResourceMemory, name == v1.ResourceEphemeralStorage, pod.IsHugePages(name):
		return ""
	case !strings.Contains(string(name), "/"):
		return "must be a standard resource for containers"
	case !pod.IsNativeResource(name) && !pod.IsExtendedResource(name):
		return "doesn't follow extended resource name standard"
	}
	return ""
}

// podResource returns the error for a pod-level resource name, or "".
func podResource(name v1.ResourceName) string {
	if pod.IsSupportedPodLevelResource(name) {
		return ""
	}
	return "must be cpu, memory or a size of hugepages for a pod"
}

// overcommits reports whether a container may use more of a resource than it
// requests.
func overcommits(name v1.ResourceName) bool {
	return pod.IsNativeResource(name) && !pod.IsHugePages(name)
}

// fillsPages reports whether an amount is a whole number of pages.
func fillsPages(name v1.ResourceName, quantity resource.Quantity) bool {
	size, err := resource.ParseQuantity(strings.TrimPrefix(string(name), v1.ResourceHugePagesPrefix))
	if err != nil || size.Sign() <= 0 || size.MilliValue()%1000 != 0 {
		return false
	}
	return quantity.Value()%size.Value() == 0
}
