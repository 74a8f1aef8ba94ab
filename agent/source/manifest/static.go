package manifest

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// validateStatic refuses what a pod without an API server cannot have: any
// reference to another API object, as the kubelet does from 1.37 on
// (HasAPIObjectReference in pkg/api/pod/util.go), ephemeral containers and
// scheduling gates.
func validateStatic(p *v1.Pod) field.ErrorList {
	c := &checks{}
	spec, path := &p.Spec, field.NewPath("spec")
	if spec.ServiceAccountName != "" {
		c.reference(path.Child("serviceAccountName"), "a ServiceAccount")
	}
	if spec.DeprecatedServiceAccount != "" {
		c.reference(path.Child("serviceAccount"), "a ServiceAccount")
	}
	if len(spec.ImagePullSecrets) > 0 {
		c.reference(path.Child("imagePullSecrets"), "Secrets")
	}
	if len(spec.ResourceClaims) > 0 {
		c.reference(path.Child("resourceClaims"), "ResourceClaims")
	}
	if len(spec.EphemeralContainers) > 0 {
		c.add(field.Forbidden(path.Child("ephemeralContainers"), "a manifest cannot have them"))
	}
	if len(spec.SchedulingGates) > 0 {
		c.add(field.Forbidden(path.Child("schedulingGates"), "nothing schedules a static pod"))
	}
	for i := range spec.Containers {
		c.containerReferences(&spec.Containers[i], path.Child("containers").Index(i))
	}
	for i := range spec.InitContainers {
		c.containerReferences(&spec.InitContainers[i], path.Child("initContainers").Index(i))
	}
	for i := range spec.Volumes {
		c.volumeReferences(&spec.Volumes[i].VolumeSource, path.Child("volumes").Index(i))
	}
	return c.errs
}

func (c *checks) reference(path *field.Path, to string) {
	c.add(field.Forbidden(path, "a static pod may not refer to "+to))
}

func (c *checks) containerReferences(container *v1.Container, path *field.Path) {
	for i := range container.Env {
		from := container.Env[i].ValueFrom
		if from == nil {
			continue
		}
		at := path.Child("env").Index(i).Child("valueFrom")
		if from.SecretKeyRef != nil {
			c.reference(at.Child("secretKeyRef"), "a Secret")
		}
		if from.ConfigMapKeyRef != nil {
			c.reference(at.Child("configMapKeyRef"), "a ConfigMap")
		}
	}
	for i := range container.EnvFrom {
		at := path.Child("envFrom").Index(i)
		if container.EnvFrom[i].SecretRef != nil {
			c.reference(at.Child("secretRef"), "a Secret")
		}
		if container.EnvFrom[i].ConfigMapRef != nil {
			c.reference(at.Child("configMapRef"), "a ConfigMap")
		}
	}
	if len(container.Resources.Claims) > 0 {
		c.reference(path.Child("resources", "claims"), "ResourceClaims")
	}
}

// volumeReferences refuses the kinds of volumes that are an API object or
// find their parameters or credentials in one.
func (c *checks) volumeReferences(v *v1.VolumeSource, path *field.Path) {
	for _, refused := range []struct {
		given bool
		kind  string
		to    string
	}{
		{v.Secret != nil, "secret", "a Secret"},
		{v.ConfigMap != nil, "configMap", "a ConfigMap"},
		{v.PersistentVolumeClaim != nil, "persistentVolumeClaim", "a PersistentVolumeClaim"},
		{v.Ephemeral != nil, "ephemeral", "a PersistentVolumeClaim"},
		{v.CSI != nil, "csi", "a CSIDriver"},
		{v.Glusterfs != nil, "glusterfs", "Endpoints"},
		{v.AzureFile != nil, "azureFile", "a Secret"},
		{v.CephFS != nil && v.CephFS.SecretRef != nil, "cephfs", "a Secret"},
		{v.Cinder != nil && v.Cinder.SecretRef != nil, "cinder", "a Secret"},
		{v.FlexVolume != nil && v.FlexVolume.SecretRef != nil, "flexVolume", "a Secret"},
		{v.ISCSI != nil && v.ISCSI.SecretRef != nil, "iscsi", "a Secret"},
		{v.RBD != nil && v.RBD.SecretRef != nil, "rbd", "a Secret"},
		{v.ScaleIO != nil && v.ScaleIO.SecretRef != nil, "scaleIO", "a Secret"},
		{v.StorageOS != nil && v.StorageOS.SecretRef != nil, "storageos", "a Secret"},
	} {
		if refused.given {
			c.reference(path.Child(refused.kind), refused.to)
		}
	}
	if v.Projected == nil {
		return
	}
	for i := range v.Projected.Sources {
		at := path.Child("projected", "sources").Index(i)
		if s := &v.Projected.Sources[i]; s.DownwardAPI == nil || s.Secret != nil || s.ConfigMap != nil ||
			s.ServiceAccountToken != nil || s.ClusterTrustBundle != nil || s.PodCertificate != nil {
			c.reference(at, "other objects: only a downwardAPI source works without an API server")
		}
	}
}
