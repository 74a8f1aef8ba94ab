package admission

import (
	"reflect"

	v1 "k8s.io/api/core/v1"
)

// Details of rejected fields.
const (
	noClaims     = "resource claims (DRA) are not supported on this node"
	noDevices    = "raw block volumes are not supported on this node"
	newerField   = "not in Kubernetes 1.36; alpha in 1.37"
	notEphemeral = "not allowed for an ephemeral container"
)

// Marks of fields that this package accepts although the node does not act on
// them.
const (
	// markControl is for fields that a scheduler, a controller or an API
	// server acts on and no kubelet does: where a pod runs, who may evict it
	// and which volumes are added to it is decided before the agent gets it.
	markControl = "control plane"
	// markWindows is for fields that only Windows nodes act on.
	markWindows = "windows"
	// markUnmountable is for volume types that are not implemented. The pod is
	// admitted and stays Pending with FailedMount events, as on a kubelet
	// without the type's driver.
	markUnmountable = "unmountable"
	// markNote is for fields with a row of their own in the tables of
	// differences (docs/reference/compatibility.md).
	markNote = "note"
)

var (
	control     = rule{mark: markControl}
	windows     = rule{mark: markWindows}
	unmountable = rule{mark: markUnmountable}
	documented  = rule{mark: markNote}
)

// rulesOf returns the rules for the fields of a type by their JSON names; nil
// if the tables do not have the type.
func rulesOf(t reflect.Type) map[string]rule {
	for _, rules := range tables {
		if r, ok := rules[t]; ok {
			return r
		}
	}
	return nil
}

// tables have a rule for each field that a pod can set, by its type and JSON
// name. To support another field, change its rule.
var tables = []map[reflect.Type]map[string]rule{podTable, containerTable, volumeTable}

var podTable = map[reflect.Type]map[string]rule{
	reflect.TypeFor[v1.PodSpec](): {
		"volumes":                       walk,
		"initContainers":                walk,
		"containers":                    walk,
		"ephemeralContainers":           walk,
		"restartPolicy":                 oneOf(v1.RestartPolicyAlways, v1.RestartPolicyOnFailure, v1.RestartPolicyNever),
		"terminationGracePeriodSeconds": allow,
		"activeDeadlineSeconds":         allow,
		"dnsPolicy":                     oneOf(v1.DNSClusterFirst, v1.DNSClusterFirstWithHostNet, v1.DNSDefault, v1.DNSNone),
		"nodeSelector":                  allow,
		"serviceAccountName":            allow,
		"serviceAccount":                allow, // the old name of serviceAccountName
		"automountServiceAccountToken":  control,
		"nodeName":                      allow,
		"hostNetwork":                   allow,
		"hostPID":                       allow,
		"hostIPC":                       allow,
		"shareProcessNamespace":         allow,
		"securityContext":               walk,
		"imagePullSecrets":              walk,
		"hostname":                      allow,
		"subdomain":                     allow,
		"affinity":                      walk,
		"schedulerName":                 control,
		"tolerations":                   walk,
		"hostAliases":                   walk,
		"priorityClassName":             allow,
		"priority":                      allow,
		"dnsConfig":                     walk,
		"readinessGates":                walk,
		"runtimeClassName":              allow,
		"enableServiceLinks":            allow,
		"preemptionPolicy":              control,
		"overhead":                      allow,
		"topologySpreadConstraints":     control,
		"setHostnameAsFQDN":             allow,
		"os":                            walk,
		"hostUsers":                     allow,
		"schedulingGates":               forbid("the pod is already bound to a node; nothing would remove the gate"),
		"resourceClaims":                forbid(noClaims),
		"resources":                     walk,
		"hostnameOverride":              allow,
		"schedulingGroup":               control,
		"evictionResponders":            control,
	},
	reflect.TypeFor[v1.PodOS]():                {"name": allow},
	reflect.TypeFor[v1.PodReadinessGate]():     {"conditionType": allow},
	reflect.TypeFor[v1.LocalObjectReference](): {"name": allow},
	reflect.TypeFor[v1.HostAlias]():            {"ip": allow, "hostnames": allow},
	reflect.TypeFor[v1.PodDNSConfig]():         {"nameservers": allow, "searches": allow, "options": walk},
	reflect.TypeFor[v1.PodDNSConfigOption]():   {"name": allow, "value": allow},
	reflect.TypeFor[v1.Affinity](): {
		"nodeAffinity":    walk,
		"podAffinity":     control,
		"podAntiAffinity": control,
	},
	reflect.TypeFor[v1.NodeAffinity](): {
		"requiredDuringSchedulingIgnoredDuringExecution":  walk,
		"preferredDuringSchedulingIgnoredDuringExecution": control,
	},
	reflect.TypeFor[v1.NodeSelector]():            {"nodeSelectorTerms": walk},
	reflect.TypeFor[v1.NodeSelectorTerm]():        {"matchExpressions": walk, "matchFields": walk},
	reflect.TypeFor[v1.NodeSelectorRequirement](): {"key": allow, "operator": allow, "values": allow},
	reflect.TypeFor[v1.Toleration](): {
		"key":               allow,
		"operator":          allow,
		"value":             allow,
		"effect":            allow,
		"tolerationSeconds": control,
	},
	reflect.TypeFor[v1.PodSecurityContext](): {
		"seLinuxOptions":           walk,
		"windowsOptions":           windows,
		"runAsUser":                allow,
		"runAsGroup":               allow,
		"runAsNonRoot":             allow,
		"supplementalGroups":       allow,
		"supplementalGroupsPolicy": oneOf(v1.SupplementalGroupsPolicyMerge, v1.SupplementalGroupsPolicyStrict),
		"fsGroup":                  allow,
		"sysctls":                  walk,
		"fsGroupChangePolicy":      oneOf(v1.FSGroupChangeOnRootMismatch, v1.FSGroupChangeAlways),
		"seccompProfile":           walk,
		"appArmorProfile":          walk,
		"seLinuxChangePolicy":      documented,
	},
	reflect.TypeFor[v1.Sysctl]():         {"name": allow, "value": allow},
	reflect.TypeFor[v1.SELinuxOptions](): {"user": allow, "role": allow, "type": allow, "level": allow},
	reflect.TypeFor[v1.SeccompProfile](): {
		"type":             oneOf(v1.SeccompProfileTypeUnconfined, v1.SeccompProfileTypeRuntimeDefault, v1.SeccompProfileTypeLocalhost),
		"localhostProfile": allow,
	},
	reflect.TypeFor[v1.AppArmorProfile](): {
		"type":             oneOf(v1.AppArmorProfileTypeUnconfined, v1.AppArmorProfileTypeRuntimeDefault, v1.AppArmorProfileTypeLocalhost),
		"localhostProfile": allow,
	},
	reflect.TypeFor[v1.ResourceRequirements](): {
		"limits":   allow,
		"requests": allow,
		"claims":   forbid(noClaims),
	},
}
