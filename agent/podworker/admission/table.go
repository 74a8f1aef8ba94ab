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

// each returns the rule for each of the fields.
func (r rule) each(names ...string) map[string]rule {
	rules := make(map[string]rule, len(names))
	for _, name := range names {
		rules[name] = r
	}
	return rules
}

// ruleSet joins the rules of different fields of a type.
func ruleSet(sets ...map[string]rule) map[string]rule {
	all := map[string]rule{}
	for _, set := range sets {
		for name, r := range set {
			if _, known := all[name]; known {
				panic("two rules for the field " + name) // of the tables below, which are constant
			}
			all[name] = r
		}
	}
	return all
}

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
	reflect.TypeFor[v1.PodSpec](): ruleSet(
		walk.each("volumes", "initContainers", "containers", "ephemeralContainers", "securityContext", "imagePullSecrets",
			"affinity", "tolerations", "hostAliases", "dnsConfig", "readinessGates", "os", "resources"),
		oneOf(v1.RestartPolicyAlways, v1.RestartPolicyOnFailure, v1.RestartPolicyNever).each("restartPolicy"),
		allow.each("terminationGracePeriodSeconds", "activeDeadlineSeconds", "nodeSelector", "serviceAccountName",
			"serviceAccount", "nodeName", "hostNetwork", "hostPID", "hostIPC", "shareProcessNamespace", "hostname",
			"subdomain", "priorityClassName", "priority", "runtimeClassName", "enableServiceLinks", "overhead",
			"setHostnameAsFQDN", "hostUsers", "hostnameOverride"),
		oneOf(v1.DNSClusterFirst, v1.DNSClusterFirstWithHostNet, v1.DNSDefault, v1.DNSNone).each("dnsPolicy"),
		control.each("automountServiceAccountToken", "schedulerName", "preemptionPolicy", "topologySpreadConstraints",
			"schedulingGroup", "evictionResponders"),
		forbid("the pod is already bound to a node; nothing would remove the gate").each("schedulingGates"),
		forbid(noClaims).each("resourceClaims"),
	),
	reflect.TypeFor[v1.PodOS]():                {"name": allow},
	reflect.TypeFor[v1.PodReadinessGate]():     {"conditionType": allow},
	reflect.TypeFor[v1.LocalObjectReference](): {"name": allow},
	reflect.TypeFor[v1.HostAlias]():            {"ip": allow, "hostnames": allow},
	reflect.TypeFor[v1.PodDNSConfig]():         {"nameservers": allow, "searches": allow, "options": walk},
	reflect.TypeFor[v1.PodDNSConfigOption]():   {"name": allow, "value": allow},
	reflect.TypeFor[v1.Affinity](): ruleSet(
		walk.each("nodeAffinity"),
		control.each("podAffinity", "podAntiAffinity"),
	),
	reflect.TypeFor[v1.NodeAffinity](): {
		"requiredDuringSchedulingIgnoredDuringExecution":  walk,
		"preferredDuringSchedulingIgnoredDuringExecution": control,
	},
	reflect.TypeFor[v1.NodeSelector]():            {"nodeSelectorTerms": walk},
	reflect.TypeFor[v1.NodeSelectorTerm]():        {"matchExpressions": walk, "matchFields": walk},
	reflect.TypeFor[v1.NodeSelectorRequirement](): {"key": allow, "operator": allow, "values": allow},
	reflect.TypeFor[v1.Toleration](): ruleSet(
		allow.each("key", "operator", "value", "effect"),
		control.each("tolerationSeconds"),
	),
	reflect.TypeFor[v1.PodSecurityContext](): ruleSet(
		walk.each("seLinuxOptions", "sysctls", "seccompProfile", "appArmorProfile"),
		windows.each("windowsOptions"),
		allow.each("runAsUser", "runAsGroup", "runAsNonRoot", "supplementalGroups", "fsGroup"),
		oneOf(v1.SupplementalGroupsPolicyMerge, v1.SupplementalGroupsPolicyStrict).each("supplementalGroupsPolicy"),
		oneOf(v1.FSGroupChangeOnRootMismatch, v1.FSGroupChangeAlways).each("fsGroupChangePolicy"),
		documented.each("seLinuxChangePolicy"),
	),
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
	reflect.TypeFor[v1.ResourceRequirements](): ruleSet(
		allow.each("limits", "requests"),
		forbid(noClaims).each("claims"),
	),
}
