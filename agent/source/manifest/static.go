package manifest

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// validateStatic rejects fields that a static pod cannot have. The kubelet also
// rejects every reference to another API object (HasAPIObjectReference in
// pkg/api/pod/util.go). Here, references to ConfigMaps, Secrets and volumes are
// accepted, since local files can define these objects, and the pod waits until
// they exist. ResourceClaims need a cluster.
func validateStatic(p *v1.Pod) field.ErrorList {
	c := &checks{}
	spec, path := &p.Spec, field.NewPath("spec")
	if len(spec.ResourceClaims) > 0 {
		c.add(field.Forbidden(path.Child("resourceClaims"), "static pods may not use ResourceClaims"))
	}
	if len(spec.EphemeralContainers) > 0 {
		c.add(field.Forbidden(path.Child("ephemeralContainers"), "cannot be set on create"))
	}
	if len(spec.SchedulingGates) > 0 {
		c.add(field.Forbidden(path.Child("schedulingGates"), "static pods are not scheduled"))
	}
	eachContainer(spec, path, func(container *v1.Container, at *field.Path) {
		if len(container.Resources.Claims) > 0 {
			c.add(field.Forbidden(at.Child("resources", "claims"), "static pods may not use ResourceClaims"))
		}
	})
	return c.errs
}

// eachContainer calls f with every container of all three kinds and its path.
func eachContainer(spec *v1.PodSpec, path *field.Path, f func(*v1.Container, *field.Path)) {
	for i := range spec.InitContainers {
		f(&spec.InitContainers[i], path.Child("initContainers").Index(i))
	}
	for i := range spec.Containers {
		f(&spec.Containers[i], path.Child("containers").Index(i))
	}
	for i := range spec.EphemeralContainers {
		f((*v1.Container)(&spec.EphemeralContainers[i].EphemeralContainerCommon), path.Child("ephemeralContainers").Index(i))
	}
}
