package manifest

import (
	"fmt"
	"regexp"
	"strings"
	"sync"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"
)

// Limits of the API and of Linux.
const (
	maxSysctlName   = 253
	maxProfileName  = 4095 // PATH_MAX without its zero byte
	notOnLinux      = "windows options cannot be set for a linux pod"
	withoutHostUser = "when `hostUsers` is false"
)

// sysctlPattern matches sysctl names, separated by dots or slashes.
var sysctlPattern = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^([a-z0-9]([-_a-z0-9]*[a-z0-9])?[./])*[a-z0-9]([-_a-z0-9]*[a-z0-9])?$`)
})

func (c *checks) podSecurity(spec *v1.PodSpec, path *field.Path) {
	c.hostUsers(spec, path)
	c.invalid(ptr.Deref(spec.ShareProcessNamespace, false) && spec.HostPID,
		path.Child("shareProcessNamespace"), true, "ShareProcessNamespace and HostPID cannot both be enabled")
	s := spec.SecurityContext
	if s == nil {
		return
	}
	at := path.Child("securityContext")
	c.userID(at.Child("runAsUser"), s.RunAsUser, validation.IsValidUserID)
	c.userID(at.Child("runAsGroup"), s.RunAsGroup, validation.IsValidGroupID)
	c.userID(at.Child("fsGroup"), s.FSGroup, validation.IsValidGroupID)
	for i := range s.SupplementalGroups {
		c.userID(at.Child("supplementalGroups").Index(i), &s.SupplementalGroups[i], validation.IsValidGroupID)
	}
	oneOfOptional(c, at.Child("supplementalGroupsPolicy"), s.SupplementalGroupsPolicy, v1.SupplementalGroupsPolicyMerge, v1.SupplementalGroupsPolicyStrict)
	oneOfOptional(c, at.Child("fsGroupChangePolicy"), s.FSGroupChangePolicy, v1.FSGroupChangeOnRootMismatch, v1.FSGroupChangeAlways)
	oneOfOptional(c, at.Child("seLinuxChangePolicy"), s.SELinuxChangePolicy, v1.SELinuxChangePolicyRecursive, v1.SELinuxChangePolicyMountOption)
	c.forbid(s.WindowsOptions != nil && isLinux(spec), at.Child("windowsOptions"), notOnLinux)
	c.sysctls(s.Sysctls, spec, at.Child("sysctls"))
	c.seLinux(at.Child("seLinuxOptions"), s.SELinuxOptions)
	c.seccomp(at.Child("seccompProfile"), s.SeccompProfile)
	c.appArmor(at.Child("appArmorProfile"), s.AppArmorProfile)
}

func isLinux(spec *v1.PodSpec) bool { return spec.OS != nil && spec.OS.Name == v1.Linux }

// hasUserNamespace reports whether the pod has its own user namespace.
func hasUserNamespace(spec *v1.PodSpec) bool { return spec.HostUsers != nil && !*spec.HostUsers }

// hostUsers rejects host namespaces and block devices in a pod with its own user
// namespace.
func (c *checks) hostUsers(spec *v1.PodSpec, path *field.Path) {
	if !hasUserNamespace(spec) {
		return
	}
	c.forbid(spec.HostNetwork, path.Child("hostNetwork"), withoutHostUser)
	c.forbid(spec.HostPID, path.Child("hostPID"), withoutHostUser)
	c.forbid(spec.HostIPC, path.Child("hostIPC"), withoutHostUser)
	eachContainer(spec, path, func(container *v1.Container, at *field.Path) {
		c.forbid(len(container.VolumeDevices) > 0, at.Child("volumeDevices"), withoutHostUser)
	})
}

func (c *checks) sysctls(sysctls []v1.Sysctl, spec *v1.PodSpec, path *field.Path) {
	names := make(map[string]struct{}, len(sysctls))
	for i, sysctl := range sysctls {
		at := path.Index(i).Child("name")
		switch {
		case sysctl.Name == "":
			c.add(field.Required(at, ""))
			continue
		case len(sysctl.Name) > maxSysctlName || !sysctlPattern().MatchString(sysctl.Name):
			c.add(field.Invalid(at, sysctl.Name, fmt.Sprintf("must have at most %d characters and match regex %s", maxSysctlName, sysctlPattern())))
		}
		c.once(at, sysctl.Name, names)
		c.noControl(path.Index(i).Child("value"), sysctl.Value)
		name := strings.ReplaceAll(sysctl.Name, "/", ".")
		c.invalid(spec.HostNetwork && strings.HasPrefix(name, "net."), at, sysctl.Name, "may not be specified when 'hostNetwork' is true")
		c.invalid(spec.HostIPC && isIPCSysctl(name), at, sysctl.Name, "may not be specified when 'hostIPC' is true")
	}
}

// isIPCSysctl reports whether a sysctl is namespaced by IPC namespace.
func isIPCSysctl(name string) bool {
	switch name {
	case "kernel.sem", "kernel.shmall", "kernel.shmmax", "kernel.shmmni", "kernel.shm_rmid_forced",
		"kernel.msgmax", "kernel.msgmnb", "kernel.msgmni":
		return true
	}
	return strings.HasPrefix(name, "fs.mqueue.")
}

func (c *checks) containerSecurity(s *v1.SecurityContext, spec *v1.PodSpec, path *field.Path) {
	if s == nil {
		return
	}
	c.userID(path.Child("runAsUser"), s.RunAsUser, validation.IsValidUserID)
	c.userID(path.Child("runAsGroup"), s.RunAsGroup, validation.IsValidGroupID)
	if s.ProcMount != nil {
		oneOf(c, path.Child("procMount"), *s.ProcMount, v1.DefaultProcMount, v1.UnmaskedProcMount)
		c.invalid(*s.ProcMount == v1.UnmaskedProcMount && !hasUserNamespace(spec),
			path.Child("procMount"), *s.ProcMount, "`hostUsers` must be false to use `Unmasked`")
	}
	if !ptr.Deref(s.AllowPrivilegeEscalation, true) {
		c.noEscalation(s, path.Child("allowPrivilegeEscalation"))
	}
	c.forbid(s.WindowsOptions != nil && isLinux(spec), path.Child("windowsOptions"), notOnLinux)
	c.capabilities(s.Capabilities, path.Child("capabilities"))
	c.seLinux(path.Child("seLinuxOptions"), s.SELinuxOptions)
	c.seccomp(path.Child("seccompProfile"), s.SeccompProfile)
	c.appArmor(path.Child("appArmorProfile"), s.AppArmorProfile)
}

// noEscalation rejects privileges that contradict
// allowPrivilegeEscalation=false.
func (c *checks) noEscalation(s *v1.SecurityContext, path *field.Path) {
	c.invalid(ptr.Deref(s.Privileged, false), path, false, "cannot set `allowPrivilegeEscalation` to false and `privileged` to true")
	for _, capability := range ptr.Deref(s.Capabilities, v1.Capabilities{}).Add {
		c.invalid(capability == "CAP_SYS_ADMIN", path, false, "cannot set `allowPrivilegeEscalation` to false and `capabilities.Add` CAP_SYS_ADMIN")
	}
}

// capabilities rejects names with control characters. The runtime checks
// whether a capability exists.
func (c *checks) capabilities(list *v1.Capabilities, path *field.Path) {
	if list == nil {
		return
	}
	for i, name := range list.Add {
		c.noControl(path.Child("add").Index(i), string(name))
	}
	for i, name := range list.Drop {
		c.noControl(path.Child("drop").Index(i), string(name))
	}
}

func (c *checks) seLinux(path *field.Path, options *v1.SELinuxOptions) {
	if options == nil {
		return
	}
	c.noControl(path.Child("user"), options.User)
	c.noControl(path.Child("role"), options.Role)
	c.noControl(path.Child("type"), options.Type)
	c.noControl(path.Child("level"), options.Level)
}

// userID checks a user or group ID. Both have 31 bits in the API.
func (c *checks) userID(path *field.Path, id *int64, valid func(int64) []string) {
	if id == nil {
		return
	}
	for _, message := range valid(*id) {
		c.add(field.Invalid(path, *id, message))
	}
}

// seccomp checks a seccomp profile. A localhost profile is a path below the
// agent's seccomp directory.
func (c *checks) seccomp(path *field.Path, profile *v1.SeccompProfile) {
	if profile == nil {
		return
	}
	oneOf(c, path.Child("type"), profile.Type, v1.SeccompProfileTypeUnconfined, v1.SeccompProfileTypeRuntimeDefault, v1.SeccompProfileTypeLocalhost)
	at := path.Child("localhostProfile")
	switch {
	case profile.Type != v1.SeccompProfileTypeLocalhost:
		if profile.LocalhostProfile != nil {
			c.add(field.Invalid(at, *profile.LocalhostProfile, "can only be set when seccomp type is Localhost"))
		}
	case profile.LocalhostProfile == nil || *profile.LocalhostProfile == "":
		c.add(field.Required(at, "must be set when seccomp type is Localhost"))
	default:
		c.descending(at, *profile.LocalhostProfile)
	}
}

func (c *checks) appArmor(path *field.Path, profile *v1.AppArmorProfile) {
	if profile == nil {
		return
	}
	oneOf(c, path.Child("type"), profile.Type, v1.AppArmorProfileTypeUnconfined, v1.AppArmorProfileTypeRuntimeDefault, v1.AppArmorProfileTypeLocalhost)
	at := path.Child("localhostProfile")
	switch {
	case profile.Type == v1.AppArmorProfileTypeUnconfined, profile.Type == v1.AppArmorProfileTypeRuntimeDefault:
		if profile.LocalhostProfile != nil {
			c.add(field.Invalid(at, *profile.LocalhostProfile, "can only be set when AppArmor type is Localhost"))
		}
	case profile.Type != v1.AppArmorProfileTypeLocalhost:
	case profile.LocalhostProfile == nil || strings.TrimSpace(*profile.LocalhostProfile) == "":
		c.add(field.Required(at, "must be set when AppArmor type is Localhost"))
	case strings.TrimSpace(*profile.LocalhostProfile) != *profile.LocalhostProfile:
		c.add(field.Invalid(at, *profile.LocalhostProfile, "must not be padded with whitespace"))
	case len(*profile.LocalhostProfile) > maxProfileName:
		c.add(field.TooLong(at, "", maxProfileName))
	default:
		c.noControl(at, *profile.LocalhostProfile)
	}
}

// appArmorAnnotation checks the annotation that set a container's profile
// before 1.30: its value, and that it matches the field, if that is set.
func (c *checks) appArmorAnnotation(p *v1.Pod, key string, path *field.Path) {
	name, ok := strings.CutPrefix(key, v1.DeprecatedAppArmorBetaContainerAnnotationKeyPrefix)
	if !ok {
		return
	}
	value, found := p.Annotations[key], false
	local, isLocal := strings.CutPrefix(value, v1.DeprecatedAppArmorBetaProfileNamePrefix)
	if value != "" && value != v1.DeprecatedAppArmorBetaProfileRuntimeDefault && value != v1.DeprecatedAppArmorBetaProfileNameUnconfined && !isLocal {
		c.add(field.Invalid(path, value, "invalid AppArmor profile name"))
	}
	c.noControl(path, local)
	eachContainer(&p.Spec, field.NewPath("spec"), func(container *v1.Container, at *field.Path) {
		if container.Name != name {
			return
		}
		found = true
		as, ok := annotationOf(profileOf(&p.Spec, container))
		c.forbid(ok && as != value, at.Child("securityContext", "appArmorProfile"), "apparmor type in annotation and field must match")
	})
	c.invalid(!found, path, name, "container not found")
}

// profileOf returns the profile from the container's field, else from the
// pod's.
func profileOf(spec *v1.PodSpec, container *v1.Container) *v1.AppArmorProfile {
	if s := container.SecurityContext; s != nil && s.AppArmorProfile != nil {
		return s.AppArmorProfile
	}
	if spec.SecurityContext == nil {
		return nil
	}
	return spec.SecurityContext.AppArmorProfile
}

// annotationOf returns the annotation that means the same as a profile. It returns
// false without a profile or for one of an unknown type.
func annotationOf(profile *v1.AppArmorProfile) (string, bool) {
	if profile == nil {
		return "", false
	}
	switch profile.Type {
	case v1.AppArmorProfileTypeUnconfined:
		return v1.DeprecatedAppArmorBetaProfileNameUnconfined, true
	case v1.AppArmorProfileTypeRuntimeDefault:
		return v1.DeprecatedAppArmorBetaProfileRuntimeDefault, true
	case v1.AppArmorProfileTypeLocalhost:
		return v1.DeprecatedAppArmorBetaProfileNamePrefix + ptr.Deref(profile.LocalhostProfile, ""), true
	}
	return "", false
}
