package manifest

import (
	"fmt"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/tinylet/tinylet/agent/pod"
)

// containers checks all three lists. A name is unique over all of them: it
// names the container's log folder and the observed container.
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
			c.noHandlers(container, at)
		}
	}
	for i := range spec.EphemeralContainers {
		at := path.Child("ephemeralContainers").Index(i)
		container := (*v1.Container)(&spec.EphemeralContainers[i].EphemeralContainerCommon)
		c.container(container, spec, volumes, at)
		c.once(at.Child("name"), container.Name, names)
		c.noHandlers(container, at)
	}
}

func (c *checks) container(container *v1.Container, spec *v1.PodSpec, volumes map[string]*v1.Volume, path *field.Path) {
	c.name(path.Child("name"), container.Name, validation.IsDNS1123Label)
	if strings.TrimSpace(container.Image) == "" {
		c.add(field.Required(path.Child("image"), ""))
	}
	c.noControl(path.Child("image"), container.Image)
	oneOf(c, path.Child("imagePullPolicy"), container.ImagePullPolicy, v1.PullAlways, v1.PullIfNotPresent, v1.PullNever)
	oneOf(c, path.Child("terminationMessagePolicy"), container.TerminationMessagePolicy, v1.TerminationMessageReadFile, v1.TerminationMessageFallbackToLogsOnError)
	c.noBacksteps(path.Child("terminationMessagePath"), container.TerminationMessagePath)
	if policy := container.RestartPolicy; policy != nil {
		oneOf(c, path.Child("restartPolicy"), *policy, v1.ContainerRestartPolicyAlways, v1.ContainerRestartPolicyOnFailure, v1.ContainerRestartPolicyNever)
	} else if len(container.RestartPolicyRules) > 0 {
		c.add(field.Required(path.Child("restartPolicy"), "when restartPolicyRules are given"))
	}
	c.ports(container.Ports, spec.HostNetwork, path.Child("ports"))
	c.env(container.Env, path.Child("env"))
	c.mounts(container.VolumeMounts, volumes, path.Child("volumeMounts"))
	for i, device := range container.VolumeDevices {
		if _, ok := volumes[device.Name]; !ok {
			c.add(field.NotFound(path.Child("volumeDevices").Index(i).Child("name"), device.Name))
		}
	}
	c.resources(&container.Resources, path.Child("resources"))
	c.containerSecurity(container.SecurityContext, path.Child("securityContext"))
}

func (c *checks) containerSecurity(s *v1.SecurityContext, path *field.Path) {
	if s == nil {
		return
	}
	c.userID(path.Child("runAsUser"), s.RunAsUser)
	c.userID(path.Child("runAsGroup"), s.RunAsGroup)
	if s.ProcMount != nil {
		oneOf(c, path.Child("procMount"), *s.ProcMount, v1.DefaultProcMount, v1.UnmaskedProcMount)
	}
	privileged := s.Privileged != nil && *s.Privileged
	if privileged && s.AllowPrivilegeEscalation != nil && !*s.AllowPrivilegeEscalation {
		c.add(field.Forbidden(path.Child("allowPrivilegeEscalation"), "may not be false when privileged is true"))
	}
	c.seccomp(path.Child("seccompProfile"), s.SeccompProfile)
	c.appArmor(path.Child("appArmorProfile"), s.AppArmorProfile)
}

// userID takes a user or a group: both are 31 bits in the API.
func (c *checks) userID(path *field.Path, id *int64) {
	if id == nil {
		return
	}
	for _, message := range validation.IsValidUserID(*id) {
		c.add(field.Invalid(path, *id, message))
	}
}

// seccomp checks a profile; a local one is a path below the agent's folder.
func (c *checks) seccomp(path *field.Path, profile *v1.SeccompProfile) {
	if profile == nil {
		return
	}
	oneOf(c, path.Child("type"), profile.Type, v1.SeccompProfileTypeUnconfined, v1.SeccompProfileTypeRuntimeDefault, v1.SeccompProfileTypeLocalhost)
	local := profile.Type == v1.SeccompProfileTypeLocalhost
	if local != (profile.LocalhostProfile != nil && *profile.LocalhostProfile != "") {
		c.add(field.Invalid(path.Child("localhostProfile"), "", "must be given just when type is Localhost"))
	} else if local {
		c.descending(path.Child("localhostProfile"), *profile.LocalhostProfile)
	}
}

func (c *checks) appArmor(path *field.Path, profile *v1.AppArmorProfile) {
	if profile == nil {
		return
	}
	oneOf(c, path.Child("type"), profile.Type, v1.AppArmorProfileTypeUnconfined, v1.AppArmorProfileTypeRuntimeDefault, v1.AppArmorProfileTypeLocalhost)
	local := profile.Type == v1.AppArmorProfileTypeLocalhost
	if local != (profile.LocalhostProfile != nil && *profile.LocalhostProfile != "") {
		c.add(field.Invalid(path.Child("localhostProfile"), "", "must be given just when type is Localhost"))
	} else if local {
		c.noControl(path.Child("localhostProfile"), *profile.LocalhostProfile)
	}
}

func (c *checks) ports(ports []v1.ContainerPort, hostNetwork bool, path *field.Path) {
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
		if hostNetwork && port.HostPort != port.ContainerPort {
			c.add(field.Invalid(at.Child("hostPort"), port.HostPort, "must be the containerPort when hostNetwork is true"))
		}
		oneOf(c, at.Child("protocol"), port.Protocol, v1.ProtocolTCP, v1.ProtocolUDP, v1.ProtocolSCTP)
		if port.HostIP != "" {
			c.address(at.Child("hostIP"), port.HostIP)
		}
	}
}

func (c *checks) portNumber(path *field.Path, port int32) {
	for _, message := range validation.IsValidPortNum(int(port)) {
		c.add(field.Invalid(path, port, message))
	}
}

// hostPorts refuses a host port that another container of the pod has.
func (c *checks) hostPorts(ports []v1.ContainerPort, taken map[string]struct{}, path *field.Path) {
	for i := range ports {
		if port := &ports[i]; port.HostPort != 0 {
			c.once(path.Index(i).Child("hostPort"), fmt.Sprintf("%s/%s/%d", port.Protocol, port.HostIP, port.HostPort), taken)
		}
	}
}
