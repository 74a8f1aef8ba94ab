package admit

import (
	"reflect"

	v1 "k8s.io/api/core/v1"

	"github.com/tinylet/tinylet/agent/criconfig"
)

const (
	notYet  = "it is not supported yet"
	noAPI   = "what needs an API server is not supported yet"
	noProbe = "probes are not supported yet"
)

// schedule marks fields that only a scheduler acts on: where a pod runs is
// decided when the agent has it, so they are taken and do nothing.
var schedule = allow

// table has a rule for each field that a pod can set, by its type and JSON
// name. To support one more, change its rule here.
var table = map[reflect.Type]map[string]rule{
	reflect.TypeFor[v1.PodSpec](): {
		"volumes":                       walk,
		"initContainers":                walk,
		"containers":                    walk,
		"ephemeralContainers":           refuse(notYet),
		"restartPolicy":                 allow,
		"terminationGracePeriodSeconds": allow,
		"activeDeadlineSeconds":         allow,
		"dnsPolicy":                     allow,
		"nodeSelector":                  schedule,
		"serviceAccountName":            refuse(noAPI),
		"serviceAccount":                refuse(noAPI),
		"automountServiceAccountToken":  allow, // without an account there is no token
		"nodeName":                      allow,
		"hostNetwork":                   allow,
		"hostPID":                       refuse(notYet),
		"hostIPC":                       refuse(notYet),
		"shareProcessNamespace":         only(false),
		"securityContext":               refuseEach(notYet),
		"imagePullSecrets":              refuse(noAPI),
		"hostname":                      allow,
		"subdomain":                     allow,
		"affinity":                      schedule,
		"schedulerName":                 schedule,
		"tolerations":                   schedule,
		"hostAliases":                   allow,
		"priorityClassName":             schedule,
		"priority":                      schedule,
		"dnsConfig":                     allow,
		"readinessGates":                refuse(noAPI),
		"runtimeClassName":              only(""),
		"enableServiceLinks":            allow, // without an API server there are no services
		"preemptionPolicy":              schedule,
		"overhead":                      refuse(notYet),
		"topologySpreadConstraints":     schedule,
		"setHostnameAsFQDN":             allow,
		"os":                            walk,
		"hostUsers":                     only(true),
		"schedulingGates":               refuse("nothing would ever lift it"),
		"resourceClaims":                refuse(noAPI),
		"resources":                     refuseEach("resources of a pod as a whole are not supported yet"),
		"hostnameOverride":              allow,
		"schedulingGroup":               schedule,
		"evictionResponders":            refuse(noAPI),
	},
	reflect.TypeFor[v1.PodOS](): {
		"name": only(v1.Linux),
	},
	reflect.TypeFor[v1.Container](): {
		"name":                     allow,
		"image":                    allow,
		"command":                  allow,
		"args":                     allow,
		"workingDir":               allow,
		"ports":                    allow,
		"envFrom":                  refuse(noAPI),
		"env":                      walk,
		"resources":                walk,
		"resizePolicy":             allow, // without a resize it says nothing
		"restartPolicy":            refuse("a restart policy of one container, and so a sidecar, is not supported yet"),
		"restartPolicyRules":       refuse(notYet),
		"volumeMounts":             walk,
		"volumeDevices":            refuse(noAPI),
		"livenessProbe":            refuse(noProbe),
		"readinessProbe":           refuse(noProbe),
		"startupProbe":             refuse(noProbe),
		"lifecycle":                refuseEach("hooks and stop signals are not supported yet"),
		"terminationMessagePath":   allow,
		"terminationMessagePolicy": allow,
		"imagePullPolicy":          allow,
		"securityContext":          refuseEach(notYet),
		"stdin":                    allow,
		"stdinOnce":                allow,
		"tty":                      allow,
	},
	reflect.TypeFor[v1.EnvVar](): {
		"name":      allow,
		"value":     allow,
		"valueFrom": walk,
	},
	reflect.TypeFor[v1.EnvVarSource](): {
		"fieldRef":         walk,
		"resourceFieldRef": walk,
		"configMapKeyRef":  refuse(noAPI),
		"secretKeyRef":     refuse(noAPI),
		"fileKeyRef":       refuse(notYet),
	},
	reflect.TypeFor[v1.ObjectFieldSelector](): {
		"apiVersion": only("v1"),
		"fieldPath":  where(criconfig.SupportsFieldRef),
	},
	reflect.TypeFor[v1.ResourceFieldSelector](): {
		"containerName": allow,
		"resource":      where(criconfig.SupportsResourceFieldRef),
		"divisor":       allow,
	},
	reflect.TypeFor[v1.ResourceRequirements](): {
		"limits":   resources(v1.ResourceCPU, v1.ResourceMemory),
		"requests": resources(v1.ResourceCPU, v1.ResourceMemory, v1.ResourceEphemeralStorage),
		"claims":   refuse(noAPI),
	},
	reflect.TypeFor[v1.VolumeMount](): {
		"name":              allow,
		"readOnly":          allow,
		"recursiveReadOnly": only(v1.RecursiveReadOnlyDisabled, v1.RecursiveReadOnlyIfPossible),
		"mountPath":         allow,
		"subPath":           refuse(notYet),
		"mountPropagation":  only(v1.MountPropagationNone),
		"subPathExpr":       refuse(notYet),
		"bindMountOptions":  refuse(notYet),
	},
	reflect.TypeFor[v1.Volume](): {
		"name":         allow,
		"VolumeSource": walk,
	},
	reflect.TypeFor[v1.VolumeSource](): {
		"hostPath":              walk,
		"emptyDir":              {walk: true, check: diskLimit},
		"image":                 refuse(notYet),
		"configMap":             refuse(noAPI),
		"secret":                refuse(noAPI),
		"downwardAPI":           refuse(notYet),
		"projected":             refuse(notYet),
		"persistentVolumeClaim": refuse(noAPI),
		"ephemeral":             refuse(noAPI),
		"csi":                   refuse(noAPI),
		"nfs":                   refuse(notYet),
		"iscsi":                 refuse(notYet),
		"fc":                    refuse(notYet),
		"flexVolume":            refuse(notYet),
		"gcePersistentDisk":     refuse(notYet),
		"awsElasticBlockStore":  refuse(notYet),
		"gitRepo":               refuse(notYet),
		"glusterfs":             refuse(notYet),
		"rbd":                   refuse(notYet),
		"cinder":                refuse(notYet),
		"cephfs":                refuse(notYet),
		"flocker":               refuse(notYet),
		"azureFile":             refuse(notYet),
		"vsphereVolume":         refuse(notYet),
		"quobyte":               refuse(notYet),
		"azureDisk":             refuse(notYet),
		"photonPersistentDisk":  refuse(notYet),
		"portworxVolume":        refuse(notYet),
		"scaleIO":               refuse(notYet),
		"storageos":             refuse(notYet),
	},
	reflect.TypeFor[v1.HostPathVolumeSource](): {
		"path": allow,
		"type": only(v1.HostPathUnset, v1.HostPathDirectoryOrCreate, v1.HostPathDirectory, v1.HostPathFileOrCreate,
			v1.HostPathFile, v1.HostPathSocket, v1.HostPathCharDev, v1.HostPathBlockDev),
	},
	reflect.TypeFor[v1.EmptyDirVolumeSource](): {
		"medium":    only(v1.StorageMediumDefault, v1.StorageMediumMemory),
		"sizeLimit": allow, // but see diskLimit
		"mode":      refuse(notYet),
	},
}
