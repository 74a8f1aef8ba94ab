package manifest

import (
	"fmt"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/tinylet/tinylet/agent/pod"
)

// containers checks all three lists. A name is unique over all of them, since
// it names the container's log directory and identifies its observed status.
func (c *checks) containers(spec *v1.PodSpec, volumes map[string]*v1.Volume, path *field.Path) {
	if len(spec.Containers) == 0 {
		c.add(field.Required(path.Child("containers"), "a pod has at least one container"))
	}
	names := make(map[string]struct{})
	hostPorts := make(map[string]struct{})
	for i := range spec.Containers {
		at := path.Child("containers").Index(i)
		container := &spec.Containers[i]
		c.container(container, spec, volumes, at)
		c.once(at.Child("name"), container.Name, names)
		c.hostPorts(container.Ports, hostPorts, at.Child("ports"))
		if spec.HostNetwork {
			c.samePorts(container.Ports, at.Child("ports"))
		}
		c.handlers(container, spec, at)
	}
	for i := range spec.InitContainers {
		at := path.Child("initContainers").Index(i)
		container := &spec.InitContainers[i]
		c.container(container, spec, volumes, at)
		c.once(at.Child("name"), container.Name, names)
		if pod.IsRestartableInit(container) {
			c.hostPorts(container.Ports, hostPorts, at.Child("ports"))
			c.handlers(container, spec, at)
		} else {
			c.hostPorts(container.Ports, make(map[string]struct{}), at.Child("ports"))
			c.noHandlers(container, at)
			c.noRestart(container.ResizePolicy, at.Child("resizePolicy"))
		}
	}
	for i := range spec.EphemeralContainers {
		at := path.Child("ephemeralContainers").Index(i)
		container := pod.EphemeralAsContainer(&spec.EphemeralContainers[i])
		c.container(container, spec, volumes, at)
		c.once(at.Child("name"), container.Name, names)
		c.noHandlers(container, at)
	}
}

func (c *checks) container(container *v1.Container, spec *v1.PodSpec, volumes map[string]*v1.Volume, path *field.Path) {
	c.name(path.Child("name"), container.Name, validation.IsDNS1123Label)
	if image := strings.TrimSpace(container.Image); image == "" {
		c.add(field.Required(path.Child("image"), ""))
	} else if image != container.Image {
		c.add(field.Invalid(path.Child("image"), container.Image, "must not have leading or trailing whitespace"))
	}
	c.noControl(path.Child("image"), container.Image)
	oneOf(c, path.Child("imagePullPolicy"), container.ImagePullPolicy, v1.PullAlways, v1.PullIfNotPresent, v1.PullNever)
	oneOf(c, path.Child("terminationMessagePolicy"), container.TerminationMessagePolicy, v1.TerminationMessageReadFile, v1.TerminationMessageFallbackToLogsOnError)
	c.noBacksteps(path.Child("terminationMessagePath"), container.TerminationMessagePath)
	c.noControl(path.Child("workingDir"), container.WorkingDir)
	c.restartRules(container, path)
	c.ports(container.Ports, path.Child("ports"))
	c.env(container.Env, volumes, path.Child("env"))
	c.envFrom(container.EnvFrom, path.Child("envFrom"))
	c.mounts(container, volumes, path.Child("volumeMounts"))
	c.devices(container, volumes, path.Child("volumeDevices"))
	c.resources(&container.Resources, containerResource, path.Child("resources"))
	c.resizePolicy(container.ResizePolicy, spec.RestartPolicy, path.Child("resizePolicy"))
	c.containerSecurity(container.SecurityContext, spec, path.Child("securityContext"))
}

// Limits of restart rules.
const (
	maxRestartRules = 20
	maxExitCodes    = 255
)

// restartRules checks a container's restart policy and the rules that override
// it.
func (c *checks) restartRules(container *v1.Container, path *field.Path) {
	at, rules := path.Child("restartPolicyRules"), container.RestartPolicyRules
	if policy := container.RestartPolicy; policy != nil {
		oneOf(c, path.Child("restartPolicy"), *policy, v1.ContainerRestartPolicyAlways, v1.ContainerRestartPolicyOnFailure, v1.ContainerRestartPolicyNever)
	} else if len(rules) > 0 {
		c.add(field.Required(path.Child("restartPolicy"), "must specify restartPolicy when restart rules are used"))
	}
	if len(rules) > maxRestartRules {
		c.add(field.TooMany(at, len(rules), maxRestartRules))
	}
	for i, rule := range rules {
		oneOf(c, at.Index(i).Child("action"), rule.Action, v1.ContainerRestartRuleActionRestart, v1.ContainerRestartRuleActionRestartAllContainers)
		codes := at.Index(i).Child("exitCodes")
		if rule.ExitCodes == nil {
			c.add(field.Required(codes, "must be specified"))
			continue
		}
		oneOf(c, codes.Child("operator"), rule.ExitCodes.Operator, v1.ContainerRestartRuleOnExitCodesOpIn, v1.ContainerRestartRuleOnExitCodesOpNotIn)
		if n := len(rule.ExitCodes.Values); n > maxExitCodes {
			c.add(field.TooMany(codes.Child("values"), n, maxExitCodes))
		}
	}
}

// resizePolicy checks the effect of a later change of resources.
func (c *checks) resizePolicy(policies []v1.ContainerResizePolicy, podPolicy v1.RestartPolicy, path *field.Path) {
	names := make(map[string]struct{}, len(policies))
	for i, policy := range policies {
		at := path.Index(i)
		c.once(at, string(policy.ResourceName), names)
		oneOf(c, at.Child("resourceName"), policy.ResourceName, v1.ResourceCPU, v1.ResourceMemory)
		oneOf(c, at.Child("restartPolicy"), policy.RestartPolicy, v1.NotRequired, v1.RestartContainer)
		c.invalid(podPolicy == v1.RestartPolicyNever && policy.RestartPolicy != v1.NotRequired,
			at.Child("restartPolicy"), policy.RestartPolicy, "must be 'NotRequired' when pod `restartPolicy` is 'Never'")
	}
}

// noRestart rejects resize policies that restart an init container that is not a
// sidecar.
func (c *checks) noRestart(policies []v1.ContainerResizePolicy, path *field.Path) {
	for i, policy := range policies {
		c.invalid(policy.RestartPolicy == v1.RestartContainer, path.Index(i).Child("restartPolicy"), policy.RestartPolicy,
			"must not be set to 'RestartContainer' for non-sidecar initContainers")
	}
}

func (c *checks) ports(ports []v1.ContainerPort, path *field.Path) {
	names := make(map[string]struct{})
	for i := range ports {
		port, at := &ports[i], path.Index(i)
		if port.Name != "" {
			c.must(at.Child("name"), port.Name, validation.IsValidPortName)
			c.once(at.Child("name"), port.Name, names)
		}
		c.portNumber(at.Child("containerPort"), port.ContainerPort)
		if port.HostPort != 0 {
			c.portNumber(at.Child("hostPort"), port.HostPort)
		}
		oneOf(c, at.Child("protocol"), port.Protocol, v1.ProtocolTCP, v1.ProtocolUDP, v1.ProtocolSCTP)
		if port.HostIP != "" {
			c.address(at.Child("hostIP"), port.HostIP)
		}
	}
}

// samePorts rejects a host port other than the container port, for a container on
// the host network.
func (c *checks) samePorts(ports []v1.ContainerPort, path *field.Path) {
	for i := range ports {
		port := &ports[i]
		c.invalid(port.HostPort != port.ContainerPort, path.Index(i).Child("hostPort"), port.HostPort, "must match `containerPort` when `hostNetwork` is true")
	}
}

func (c *checks) portNumber(path *field.Path, port int32) {
	for _, message := range validation.IsValidPortNum(int(port)) {
		c.add(field.Invalid(path, port, message))
	}
}

// hostPorts rejects a host port that another container of the pod uses.
func (c *checks) hostPorts(ports []v1.ContainerPort, taken map[string]struct{}, path *field.Path) {
	for i := range ports {
		if port := &ports[i]; port.HostPort != 0 {
			c.once(path.Index(i).Child("hostPort"), fmt.Sprintf("%s/%s/%d", port.Protocol, port.HostIP, port.HostPort), taken)
		}
	}
}
