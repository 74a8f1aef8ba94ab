package admission

import (
	"reflect"
	"strings"

	v1 "k8s.io/api/core/v1"
)

var volumeTable = map[reflect.Type]map[string]rule{
	reflect.TypeFor[v1.Volume](): {
		"name":         allow,
		"VolumeSource": walk,
	},
	reflect.TypeFor[v1.VolumeSource](): ruleSet(
		walk.each("hostPath", "emptyDir", "image", "configMap", "secret", "downwardAPI", "projected", "persistentVolumeClaim"),
		unmountable.each("ephemeral", "csi", "nfs", "iscsi", "fc", "flexVolume", "gcePersistentDisk",
			"awsElasticBlockStore", "gitRepo", "glusterfs", "rbd", "cinder", "cephfs", "flocker", "azureFile",
			"vsphereVolume", "quobyte", "azureDisk", "photonPersistentDisk", "portworxVolume", "scaleIO", "storageos"),
	),
	reflect.TypeFor[v1.HostPathVolumeSource](): {
		"path": allow,
		"type": oneOf(v1.HostPathUnset, v1.HostPathDirectoryOrCreate, v1.HostPathDirectory, v1.HostPathFileOrCreate,
			v1.HostPathFile, v1.HostPathSocket, v1.HostPathCharDev, v1.HostPathBlockDev),
	},
	reflect.TypeFor[v1.EmptyDirVolumeSource](): {
		"medium":    matching(isMedium),
		"sizeLimit": allow,
		"mode":      forbid(newerField),
	},
	reflect.TypeFor[v1.ImageVolumeSource](): {"reference": allow, "pullPolicy": oneOf(v1.PullAlways, v1.PullIfNotPresent, v1.PullNever)},
	reflect.TypeFor[v1.ConfigMapVolumeSource](): ruleSet(
		walk.each("LocalObjectReference", "items"),
		allow.each("defaultMode", "optional"),
		forbid(newerField).each("defaultUser"),
	),
	reflect.TypeFor[v1.SecretVolumeSource](): ruleSet(
		allow.each("secretName", "defaultMode", "optional"),
		walk.each("items"),
		forbid(newerField).each("defaultUser"),
	),
	reflect.TypeFor[v1.KeyToPath](): ruleSet(
		allow.each("key", "path", "mode"),
		forbid(newerField).each("user"),
	),
	reflect.TypeFor[v1.DownwardAPIVolumeSource](): {
		"items":       walk,
		"defaultMode": allow,
		"defaultUser": forbid(newerField),
	},
	reflect.TypeFor[v1.DownwardAPIVolumeFile](): ruleSet(
		allow.each("path", "mode"),
		walk.each("fieldRef", "resourceFieldRef"),
		forbid(newerField).each("user"),
	),
	reflect.TypeFor[v1.ProjectedVolumeSource](): {
		"sources":     walk,
		"defaultMode": allow,
		"defaultUser": forbid(newerField),
	},
	reflect.TypeFor[v1.VolumeProjection](): ruleSet(
		walk.each("secret", "downwardAPI", "configMap", "serviceAccountToken"),
		documented.each("clusterTrustBundle"),
		unmountable.each("podCertificate"),
	),
	reflect.TypeFor[v1.SecretProjection]():      {"LocalObjectReference": walk, "items": walk, "optional": allow},
	reflect.TypeFor[v1.ConfigMapProjection]():   {"LocalObjectReference": walk, "items": walk, "optional": allow},
	reflect.TypeFor[v1.DownwardAPIProjection](): {"items": walk},
	reflect.TypeFor[v1.ServiceAccountTokenProjection](): ruleSet(
		allow.each("audience", "expirationSeconds", "path"),
		forbid(newerField).each("user"),
	),
	reflect.TypeFor[v1.PersistentVolumeClaimVolumeSource](): {"claimName": allow, "readOnly": allow},
	reflect.TypeFor[v1.VolumeMount](): ruleSet(
		allow.each("name", "readOnly", "mountPath", "subPath", "subPathExpr"),
		oneOf(v1.RecursiveReadOnlyDisabled, v1.RecursiveReadOnlyIfPossible, v1.RecursiveReadOnlyEnabled).each(
			"recursiveReadOnly"),
		oneOf(v1.MountPropagationNone, v1.MountPropagationHostToContainer, v1.MountPropagationBidirectional).each(
			"mountPropagation"),
		forbid(newerField).each("bindMountOptions"),
	),
}

// isMedium reports whether an emptyDir can have the medium, if it is not the disk: memory,
// or huge pages of the only size or of a given size.
func isMedium(medium string) bool {
	m := v1.StorageMedium(medium)
	return m == v1.StorageMediumMemory || m == v1.StorageMediumHugePages || strings.HasPrefix(medium, string(v1.StorageMediumHugePagesPrefix))
}
