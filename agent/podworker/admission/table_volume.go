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
	reflect.TypeFor[v1.VolumeSource](): {
		"hostPath":              walk,
		"emptyDir":              walk,
		"image":                 walk,
		"configMap":             walk,
		"secret":                walk,
		"downwardAPI":           walk,
		"projected":             walk,
		"persistentVolumeClaim": walk,
		"ephemeral":             unmountable,
		"csi":                   unmountable,
		"nfs":                   unmountable,
		"iscsi":                 unmountable,
		"fc":                    unmountable,
		"flexVolume":            unmountable,
		"gcePersistentDisk":     unmountable,
		"awsElasticBlockStore":  unmountable,
		"gitRepo":               unmountable,
		"glusterfs":             unmountable,
		"rbd":                   unmountable,
		"cinder":                unmountable,
		"cephfs":                unmountable,
		"flocker":               unmountable,
		"azureFile":             unmountable,
		"vsphereVolume":         unmountable,
		"quobyte":               unmountable,
		"azureDisk":             unmountable,
		"photonPersistentDisk":  unmountable,
		"portworxVolume":        unmountable,
		"scaleIO":               unmountable,
		"storageos":             unmountable,
	},
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
	reflect.TypeFor[v1.ConfigMapVolumeSource](): {
		"LocalObjectReference": walk,
		"items":                walk,
		"defaultMode":          allow,
		"optional":             allow,
		"defaultUser":          forbid(newerField),
	},
	reflect.TypeFor[v1.SecretVolumeSource](): {
		"secretName":  allow,
		"items":       walk,
		"defaultMode": allow,
		"optional":    allow,
		"defaultUser": forbid(newerField),
	},
	reflect.TypeFor[v1.KeyToPath](): {
		"key":  allow,
		"path": allow,
		"mode": allow,
		"user": forbid(newerField),
	},
	reflect.TypeFor[v1.DownwardAPIVolumeSource](): {
		"items":       walk,
		"defaultMode": allow,
		"defaultUser": forbid(newerField),
	},
	reflect.TypeFor[v1.DownwardAPIVolumeFile](): {
		"path":             allow,
		"fieldRef":         walk,
		"resourceFieldRef": walk,
		"mode":             allow,
		"user":             forbid(newerField),
	},
	reflect.TypeFor[v1.ProjectedVolumeSource](): {
		"sources":     walk,
		"defaultMode": allow,
		"defaultUser": forbid(newerField),
	},
	reflect.TypeFor[v1.VolumeProjection](): {
		"secret":              walk,
		"downwardAPI":         walk,
		"configMap":           walk,
		"serviceAccountToken": walk,
		"clusterTrustBundle":  documented,
		"podCertificate":      unmountable,
	},
	reflect.TypeFor[v1.SecretProjection]():      {"LocalObjectReference": walk, "items": walk, "optional": allow},
	reflect.TypeFor[v1.ConfigMapProjection]():   {"LocalObjectReference": walk, "items": walk, "optional": allow},
	reflect.TypeFor[v1.DownwardAPIProjection](): {"items": walk},
	reflect.TypeFor[v1.ServiceAccountTokenProjection](): {
		"audience":          allow,
		"expirationSeconds": allow,
		"path":              allow,
		"user":              forbid(newerField),
	},
	reflect.TypeFor[v1.PersistentVolumeClaimVolumeSource](): {"claimName": allow, "readOnly": allow},
	reflect.TypeFor[v1.VolumeMount](): {
		"name":              allow,
		"readOnly":          allow,
		"recursiveReadOnly": oneOf(v1.RecursiveReadOnlyDisabled, v1.RecursiveReadOnlyIfPossible, v1.RecursiveReadOnlyEnabled),
		"mountPath":         allow,
		"subPath":           allow,
		"mountPropagation":  oneOf(v1.MountPropagationNone, v1.MountPropagationHostToContainer, v1.MountPropagationBidirectional),
		"subPathExpr":       allow,
		"bindMountOptions":  forbid(newerField),
	},
}

// isMedium reports whether an emptyDir can have the medium: disk, memory, or huge
// pages of the only size or of a given size.
func isMedium(medium string) bool {
	switch m := v1.StorageMedium(medium); m {
	case v1.StorageMediumDefault, v1.StorageMediumMemory, v1.StorageMediumHugePages:
		return true
	default:
		return strings.HasPrefix(medium, string(v1.StorageMediumHugePagesPrefix))
	}
}
