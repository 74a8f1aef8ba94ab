package manifest

import (
	"fmt"
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

func (c *checks) resources(r *v1.ResourceRequirements, path *field.Path) {
	c.quantities(r.Limits, path.Child("limits"))
	c.quantities(r.Requests, path.Child("requests"))
	for _, name := range slices.Sorted(maps.Keys(r.Requests)) {
		request := r.Requests[name]
		if limit, ok := r.Limits[name]; ok && request.Cmp(limit) > 0 {
			c.add(field.Invalid(path.Child("requests").Key(string(name)), request.String(),
				fmt.Sprintf("must not be more than the limit of %s", limit.String())))
		}
	}
}

func (c *checks) quantities(list v1.ResourceList, path *field.Path) {
	for _, name := range slices.Sorted(maps.Keys(list)) {
		at := path.Key(string(name))
		c.name(at, string(name), validation.IsQualifiedName)
		if quantity := list[name]; quantity.Sign() < 0 {
			c.add(field.Invalid(at, quantity.String(), "must not be negative"))
		}
	}
}
