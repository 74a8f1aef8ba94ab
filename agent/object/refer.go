package object

import (
	v1 "k8s.io/api/core/v1"

	"github.com/tinylet/tinylet/agent/pod"
)

// Refers says whether a pod's spec refers to an object by kind and name. A
// PersistentVolume is referred to by whoever has a claim, as only the claim
// tells which it is.
func Refers(p *v1.Pod, kind, namespace, name string) bool {
	if !global(kind) && p.Namespace != namespace {
		return false
	}
	if class := p.Spec.RuntimeClassName; kind == KindClass && class != nil && *class == name {
		return true
	}
	for i := range p.Spec.Volumes {
		if volumeRefers(&p.Spec.Volumes[i], kind, name) {
			return true
		}
	}
	for c := range pod.Containers(&p.Spec) {
		if environmentRefers(c, kind, name) {
			return true
		}
	}
	if kind == KindSecret {
		for _, secret := range p.Spec.ImagePullSecrets {
			if secret.Name == name {
				return true
			}
		}
	}
	return false
}

func volumeRefers(v *v1.Volume, kind, name string) bool {
	switch {
	case v.PersistentVolumeClaim != nil:
		return kind == KindVolume || kind == KindClaim && v.PersistentVolumeClaim.ClaimName == name
	case v.ConfigMap != nil:
		return kind == KindConfigMap && v.ConfigMap.Name == name
	case v.Secret != nil:
		return kind == KindSecret && v.Secret.SecretName == name
	case v.Projected == nil:
		return false
	}
	for i := range v.Projected.Sources {
		s := &v.Projected.Sources[i]
		if kind == KindConfigMap && s.ConfigMap != nil && s.ConfigMap.Name == name ||
			kind == KindSecret && s.Secret != nil && s.Secret.Name == name {
			return true
		}
	}
	return false
}

func environmentRefers(c *v1.Container, kind, name string) bool {
	for i := range c.EnvFrom {
		e := &c.EnvFrom[i]
		if kind == KindConfigMap && e.ConfigMapRef != nil && e.ConfigMapRef.Name == name ||
			kind == KindSecret && e.SecretRef != nil && e.SecretRef.Name == name {
			return true
		}
	}
	for i := range c.Env {
		from := c.Env[i].ValueFrom
		if from == nil {
			continue
		}
		if kind == KindConfigMap && from.ConfigMapKeyRef != nil && from.ConfigMapKeyRef.Name == name ||
			kind == KindSecret && from.SecretKeyRef != nil && from.SecretKeyRef.Name == name {
			return true
		}
	}
	return false
}
