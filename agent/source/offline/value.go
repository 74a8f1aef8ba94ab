package offline

import (
	"errors"
	"slices"

	authenticationv1 "k8s.io/api/authentication/v1"
	v1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tinylet/tinylet/agent/pod"
	"github.com/tinylet/tinylet/agent/source/objects"
)

// format is the version of the values, their first byte.
const format = 1

// errFormat means that a value has an unknown version.
var errFormat = errors.New("unknown value format")

// message is implemented by every type of k8s.io/api.
type message interface {
	Marshal() ([]byte, error)
	Unmarshal([]byte) error
}

// newMessage returns an empty value of a kind, or nil for an unknown kind.
func newMessage(kind string) message {
	switch kind {
	case objects.KindConfigMap, kindBundle:
		return &v1.ConfigMap{}
	case objects.KindSecret:
		return &v1.Secret{}
	case objects.KindClaim:
		return &v1.PersistentVolumeClaim{}
	case objects.KindVolume:
		return &v1.PersistentVolume{}
	case objects.KindClass:
		return &nodev1.RuntimeClass{}
	case kindServices:
		return &v1.ServiceList{}
	case kindToken:
		return &authenticationv1.TokenRequestStatus{}
	}
	return nil
}

// encode returns the value of a message. It is deterministic.
func encode(m message) ([]byte, error) {
	data, err := m.Marshal()
	if err != nil {
		return nil, err
	}
	return slices.Concat([]byte{format}, data), nil
}

// decode decodes a value into an empty message.
func decode(value []byte, into message) error {
	if len(value) == 0 || value[0] != format {
		return errFormat
	}
	return into.Unmarshal(value[1:])
}

// lasting returns the part of a pod that is stored. It shares memory with the
// pod.
func lasting(p *v1.Pod, started *metav1.Time) *v1.Pod {
	kept := &v1.Pod{ObjectMeta: p.ObjectMeta, Spec: p.Spec}
	kept.ManagedFields, kept.ResourceVersion = nil, ""
	if pod.IsTerminal(p.Status.Phase) {
		kept.Status = p.Status
		return kept
	}
	kept.Status.StartTime = started
	for i := range p.Status.Conditions {
		gate := v1.PodReadinessGate{ConditionType: p.Status.Conditions[i].Type}
		if slices.Contains(p.Spec.ReadinessGates, gate) {
			kept.Status.Conditions = append(kept.Status.Conditions, p.Status.Conditions[i])
		}
	}
	return kept
}

// outline returns the part of a pod that determines its references. It stays in
// memory in place of the whole pod.
func outline(p *v1.Pod) *v1.Pod {
	o := &v1.Pod{}
	o.Namespace, o.Name, o.UID = p.Namespace, p.Name, p.UID
	o.Spec.RuntimeClassName, o.Spec.ImagePullSecrets = p.Spec.RuntimeClassName, p.Spec.ImagePullSecrets
	o.Spec.EnableServiceLinks = p.Spec.EnableServiceLinks
	for i := range p.Spec.Volumes {
		s := &p.Spec.Volumes[i].VolumeSource
		if s.ConfigMap != nil || s.Secret != nil || s.Projected != nil || s.PersistentVolumeClaim != nil {
			o.Spec.Volumes = append(o.Spec.Volumes, v1.Volume{VolumeSource: v1.VolumeSource{
				ConfigMap: s.ConfigMap, Secret: s.Secret, Projected: s.Projected, PersistentVolumeClaim: s.PersistentVolumeClaim,
			}})
		}
	}
	var all v1.Container // stands for all containers
	for c := range pod.Containers(&p.Spec) {
		all.EnvFrom = append(all.EnvFrom, c.EnvFrom...)
		for i := range c.Env {
			if from := c.Env[i].ValueFrom; from != nil && (from.ConfigMapKeyRef != nil || from.SecretKeyRef != nil) {
				all.Env = append(all.Env, v1.EnvVar{ValueFrom: from})
			}
		}
	}
	if len(all.EnvFrom) > 0 || len(all.Env) > 0 {
		o.Spec.Containers = []v1.Container{all}
	}
	return o
}

// essential returns the part of an object that is stored: what a pod can use.
func essential(m message) message {
	switch o := m.(type) {
	case *v1.ConfigMap:
		return &v1.ConfigMap{ObjectMeta: name(&o.ObjectMeta), Data: o.Data, BinaryData: o.BinaryData, Immutable: o.Immutable}
	case *v1.Secret:
		return &v1.Secret{ObjectMeta: name(&o.ObjectMeta), Data: o.Data, Type: o.Type, Immutable: o.Immutable}
	case *v1.PersistentVolumeClaim:
		return &v1.PersistentVolumeClaim{ObjectMeta: plain(&o.ObjectMeta), Spec: o.Spec, Status: o.Status}
	case *v1.PersistentVolume:
		return &v1.PersistentVolume{ObjectMeta: plain(&o.ObjectMeta), Spec: o.Spec, Status: o.Status}
	case *nodev1.RuntimeClass:
		return &nodev1.RuntimeClass{ObjectMeta: plain(&o.ObjectMeta), Handler: o.Handler, Overhead: o.Overhead, Scheduling: o.Scheduling}
	}
	return m
}

func name(m *metav1.ObjectMeta) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: m.Namespace, Name: m.Name, UID: m.UID}
}

// plain returns the metadata without fields that change on every write.
func plain(m *metav1.ObjectMeta) metav1.ObjectMeta {
	kept := *m
	kept.ManagedFields, kept.ResourceVersion = nil, ""
	return kept
}
