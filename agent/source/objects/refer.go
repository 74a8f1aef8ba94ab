package objects

import (
	"iter"

	v1 "k8s.io/api/core/v1"

	"github.com/tinylet/tinylet/agent/pod"
)

// PodReferences reports whether a pod's spec references an object by kind and name.
// Every pod with a claim counts as referencing a PersistentVolume, since only
// the claim names the volume.
func PodReferences(p *v1.Pod, kind, namespace, name string) bool {
	if !clusterScoped(kind) && p.Namespace != namespace {
		return false
	}
	for k, n := range References(p) {
		if k == kind && n == name || k == KindClaim && kind == KindVolume {
			return true
		}
	}
	return false
}

// References returns the kinds and names of the objects that a pod's spec
// references. Namespaced objects are in the pod's namespace. An object may
// occur more than once. PersistentVolumes are not included, since only the
// claims name them.
func References(p *v1.Pod) iter.Seq2[string, string] {
	return func(yield func(kind, name string) bool) {
		named := func(kind, name string) bool { return name == "" || yield(kind, name) }
		if class := p.Spec.RuntimeClassName; class != nil && !named(KindClass, *class) {
			return
		}
		for i := range p.Spec.Volumes {
			if !volumeReferences(&p.Spec.Volumes[i], named) {
				return
			}
		}
		for c := range pod.Containers(&p.Spec) {
			if !environmentReferences(c, named) {
				return
			}
		}
		for _, secret := range p.Spec.ImagePullSecrets {
			if !named(KindSecret, secret.Name) {
				return
			}
		}
	}
}

// volumeReferences calls yield until it returns false, and returns its last
// result.
func volumeReferences(v *v1.Volume, yield func(kind, name string) bool) bool {
	switch {
	case v.PersistentVolumeClaim != nil:
		return yield(KindClaim, v.PersistentVolumeClaim.ClaimName)
	case v.ConfigMap != nil:
		return yield(KindConfigMap, v.ConfigMap.Name)
	case v.Secret != nil:
		return yield(KindSecret, v.Secret.SecretName)
	case v.Projected == nil:
		return true
	}
	for i := range v.Projected.Sources {
		s := &v.Projected.Sources[i]
		if s.ConfigMap != nil && !yield(KindConfigMap, s.ConfigMap.Name) || s.Secret != nil && !yield(KindSecret, s.Secret.Name) {
			return false
		}
	}
	return true
}

// environmentReferences calls yield until it returns false, and returns its
// last result.
func environmentReferences(c *v1.Container, yield func(kind, name string) bool) bool {
	for i := range c.EnvFrom {
		e := &c.EnvFrom[i]
		if e.ConfigMapRef != nil && !yield(KindConfigMap, e.ConfigMapRef.Name) || e.SecretRef != nil && !yield(KindSecret, e.SecretRef.Name) {
			return false
		}
	}
	for i := range c.Env {
		from := c.Env[i].ValueFrom
		if from == nil {
			continue
		}
		if from.ConfigMapKeyRef != nil && !yield(KindConfigMap, from.ConfigMapKeyRef.Name) ||
			from.SecretKeyRef != nil && !yield(KindSecret, from.SecretKeyRef.Name) {
			return false
		}
	}
	return true
}
