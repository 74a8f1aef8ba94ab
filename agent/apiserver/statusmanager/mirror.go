package statusmanager

import (
	"maps"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tinylet/tinylet/agent/pod"
)

// newMirrorPod returns the mirror pod of a static pod (CreateMirrorPod in
// pkg/kubelet/pod/mirror_client.go), with the owner reference that the admission
// plugin NodeRestriction requires (KEP-1314).
func newMirrorPod(p *v1.Pod, nodeName string, nodeUID types.UID) *v1.Pod {
	annotations := maps.Clone(p.Annotations)
	if annotations == nil {
		annotations = make(map[string]string, 1)
	}
	annotations[pod.AnnotationMirror] = p.Annotations[pod.AnnotationHash]
	controller := true
	m := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: p.Name, Namespace: p.Namespace, Labels: p.Labels, Annotations: annotations,
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: v1.SchemeGroupVersion.String(), Kind: "Node", Name: nodeName, UID: nodeUID, Controller: &controller,
			}},
		},
		Spec: p.Spec,
	}
	m.Spec.NodeName = nodeName
	return m
}

// mirrors reports whether m is the mirror pod of the current version of the static
// pod.
func mirrors(m, static *v1.Pod) bool {
	return m.Annotations[pod.AnnotationMirror] == static.Annotations[pod.AnnotationHash]
}

// apiObjectReference returns the first resource that a pod references and for which
// NodeRestriction rejects it as a mirror pod, or "" (HasAPIObjectReference in
// pkg/api/pod/util.go).
func apiObjectReference(s *v1.PodSpec) string {
	if s.ServiceAccountName != "" || s.DeprecatedServiceAccount != "" {
		return "serviceaccounts"
	}
	if len(s.ImagePullSecrets) > 0 {
		return "secrets"
	}
	if len(s.ResourceClaims) > 0 {
		return "resourceclaims"
	}
	for c := range pod.Containers(s) {
		if r := environmentReference(c); r != "" {
			return r
		}
	}
	for i := range s.Volumes {
		if r := volumeReference(&s.Volumes[i]); r != "" {
			return r
		}
	}
	return ""
}

func environmentReference(c *v1.Container) string {
	for i := range c.EnvFrom {
		switch e := &c.EnvFrom[i]; {
		case e.SecretRef != nil:
			return "secrets"
		case e.ConfigMapRef != nil:
			return "configmaps"
		}
	}
	for i := range c.Env {
		switch from := c.Env[i].ValueFrom; {
		case from == nil:
		case from.SecretKeyRef != nil:
			return "secrets"
		case from.ConfigMapKeyRef != nil:
			return "configmaps"
		}
	}
	return ""
}

func volumeReference(v *v1.Volume) string {
	switch {
	case v.ConfigMap != nil:
		return "configmaps"
	case v.Secret != nil, v.AzureFile != nil:
		return "secrets"
	case v.CSI != nil:
		return "csidrivers"
	case v.Glusterfs != nil:
		return "endpoints"
	case v.PersistentVolumeClaim != nil, v.Ephemeral != nil:
		return "persistentvolumeclaims"
	case v.Projected != nil:
		return projectedReference(v.Projected)
	case v.CephFS != nil && v.CephFS.SecretRef != nil, v.Cinder != nil && v.Cinder.SecretRef != nil,
		v.FlexVolume != nil && v.FlexVolume.SecretRef != nil, v.ISCSI != nil && v.ISCSI.SecretRef != nil,
		v.RBD != nil && v.RBD.SecretRef != nil, v.ScaleIO != nil && v.ScaleIO.SecretRef != nil,
		v.StorageOS != nil && v.StorageOS.SecretRef != nil:
		return "secrets"
	}
	return ""
}

func projectedReference(v *v1.ProjectedVolumeSource) string {
	for i := range v.Sources {
		switch s := &v.Sources[i]; {
		case s.ConfigMap != nil:
			return "configmaps"
		case s.Secret != nil:
			return "secrets"
		case s.ServiceAccountToken != nil:
			return "serviceaccounts"
		case s.ClusterTrustBundle != nil:
			return "clustertrustbundles"
		case s.PodCertificate != nil:
			return "podcertificates"
		}
	}
	return ""
}
