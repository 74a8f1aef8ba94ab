package admission

import (
	"maps"
	"reflect"

	v1 "k8s.io/api/core/v1"

	"github.com/tinylet/tinylet/agent/container/criconfig"
)

var containerRules = ruleSet(
	allow.each("name", "image", "command", "args", "workingDir", "terminationMessagePath", "stdin", "stdinOnce", "tty"),
	walk.each("ports", "envFrom", "env", "resources", "restartPolicyRules", "volumeMounts", "livenessProbe",
		"readinessProbe", "startupProbe", "lifecycle", "securityContext"),
	documented.each("resizePolicy"),
	oneOf(v1.ContainerRestartPolicyAlways, v1.ContainerRestartPolicyOnFailure, v1.ContainerRestartPolicyNever).each(
		"restartPolicy"),
	forbid(noDevices).each("volumeDevices"),
	oneOf(v1.TerminationMessageReadFile, v1.TerminationMessageFallbackToLogsOnError).each("terminationMessagePolicy"),
	oneOf(v1.PullAlways, v1.PullIfNotPresent, v1.PullNever).each("imagePullPolicy"),
)

// ephemeralContainerRules returns the rules of a container without the fields that the API
// forbids for an ephemeral container.
func ephemeralContainerRules() map[string]rule {
	rules := maps.Clone(containerRules)
	for _, name := range []string{
		"ports", "resources", "resizePolicy", "restartPolicy", "restartPolicyRules",
		"livenessProbe", "readinessProbe", "startupProbe", "lifecycle",
	} {
		rules[name] = forbidEach(notEphemeral)
	}
	return rules
}

var containerTable = map[reflect.Type]map[string]rule{
	reflect.TypeFor[v1.Container]():                containerRules,
	reflect.TypeFor[v1.EphemeralContainerCommon](): ephemeralContainerRules(),
	reflect.TypeFor[v1.EphemeralContainer](): {
		"EphemeralContainerCommon": walk,
		"targetContainerName":      allow,
	},
	reflect.TypeFor[v1.ContainerPort](): ruleSet(
		allow.each("name", "hostPort", "containerPort", "hostIP"),
		oneOf(v1.ProtocolTCP, v1.ProtocolUDP, v1.ProtocolSCTP).each("protocol"),
	),
	reflect.TypeFor[v1.EnvFromSource]():      {"prefix": allow, "configMapRef": walk, "secretRef": walk},
	reflect.TypeFor[v1.ConfigMapEnvSource](): {"LocalObjectReference": walk, "optional": allow},
	reflect.TypeFor[v1.SecretEnvSource]():    {"LocalObjectReference": walk, "optional": allow},
	reflect.TypeFor[v1.EnvVar]():             {"name": allow, "value": allow, "valueFrom": walk},
	reflect.TypeFor[v1.EnvVarSource](): ruleSet(
		walk.each("fieldRef", "resourceFieldRef", "configMapKeyRef", "secretKeyRef", "fileKeyRef"),
	),
	reflect.TypeFor[v1.ConfigMapKeySelector](): {"LocalObjectReference": walk, "key": allow, "optional": allow},
	reflect.TypeFor[v1.SecretKeySelector]():    {"LocalObjectReference": walk, "key": allow, "optional": allow},
	reflect.TypeFor[v1.FileKeySelector]():      {"volumeName": allow, "path": allow, "key": allow, "optional": allow},
	reflect.TypeFor[v1.ObjectFieldSelector](): {
		"apiVersion": oneOf("v1"),
		"fieldPath":  matching(isField),
	},
	reflect.TypeFor[v1.ResourceFieldSelector](): ruleSet(
		allow.each("containerName", "divisor"),
		matching(criconfig.SupportsResourceFieldRef).each("resource"),
	),
	reflect.TypeFor[v1.ContainerRestartRule](): {
		"action":    oneOf(v1.ContainerRestartRuleActionRestart, v1.ContainerRestartRuleActionRestartAllContainers),
		"exitCodes": walk,
	},
	reflect.TypeFor[v1.ContainerRestartRuleOnExitCodes](): {
		"operator": oneOf(v1.ContainerRestartRuleOnExitCodesOpIn, v1.ContainerRestartRuleOnExitCodesOpNotIn),
		"values":   allow,
	},
	reflect.TypeFor[v1.Probe](): ruleSet(
		walk.each("ProbeHandler"),
		allow.each("initialDelaySeconds", "timeoutSeconds", "periodSeconds", "successThreshold", "failureThreshold",
			"terminationGracePeriodSeconds"),
	),
	reflect.TypeFor[v1.ProbeHandler]():     {"exec": walk, "httpGet": walk, "tcpSocket": walk, "grpc": walk},
	reflect.TypeFor[v1.Lifecycle]():        {"postStart": walk, "preStop": walk, "stopSignal": allow},
	reflect.TypeFor[v1.LifecycleHandler](): {"exec": walk, "httpGet": walk, "tcpSocket": forbid("tcpSocket hooks fail on every node"), "sleep": walk},
	reflect.TypeFor[v1.ExecAction]():       {"command": allow},
	reflect.TypeFor[v1.HTTPGetAction](): ruleSet(
		allow.each("path", "port", "host"),
		oneOf(v1.URISchemeHTTP, v1.URISchemeHTTPS).each("scheme"),
		walk.each("httpHeaders"),
		forbid(newerField).each("protocol"),
	),
	reflect.TypeFor[v1.HTTPHeader]():      {"name": allow, "value": allow},
	reflect.TypeFor[v1.TCPSocketAction](): {"port": allow, "host": allow},
	reflect.TypeFor[v1.GRPCAction]():      {"port": allow, "service": allow, "mode": forbid(newerField)},
	reflect.TypeFor[v1.SleepAction]():     {"seconds": allow},
	reflect.TypeFor[v1.SecurityContext](): ruleSet(
		walk.each("capabilities", "seLinuxOptions", "seccompProfile", "appArmorProfile"),
		allow.each("privileged", "runAsUser", "runAsGroup", "runAsNonRoot", "readOnlyRootFilesystem",
			"allowPrivilegeEscalation"),
		windows.each("windowsOptions"),
		oneOf(v1.DefaultProcMount, v1.UnmaskedProcMount).each("procMount"),
	),
	reflect.TypeFor[v1.Capabilities](): {"add": allow, "drop": allow},
}

// isField reports whether the downward API supports a field of the pod, in an
// environment variable or a file. The config source has checked which of the two
// the field is allowed in.
func isField(path string) bool {
	return path == "metadata.labels" || path == "metadata.annotations" || criconfig.SupportsFieldRef(path)
}
