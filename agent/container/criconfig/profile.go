package criconfig

import (
	"cmp"
	"path/filepath"
	"strings"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/utils/ptr"
)

// seccomp returns the profile of the container, else of the pod, else the
// runtime's default profile with Node.SeccompDefault, else unconfined.
func seccomp(n *Node, own, pods *v1.SeccompProfile) (*runtimeapi.SecurityProfile, error) {
	profile := cmp.Or(own, pods)
	switch {
	case profile != nil:
	case n.SeccompDefault:
		profile = &v1.SeccompProfile{Type: v1.SeccompProfileTypeRuntimeDefault}
	default:
		profile = &v1.SeccompProfile{Type: v1.SeccompProfileTypeUnconfined}
	}
	kind, ok := runtimeapi.SecurityProfile_ProfileType_value[string(profile.Type)] // CRI has the API's names
	if !ok {
		return nil, configErrorf("unknown seccomp profile type: %q", profile.Type)
	}
	out := &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_ProfileType(kind)}
	if profile.Type == v1.SeccompProfileTypeLocalhost {
		name := ptr.Deref(profile.LocalhostProfile, "")
		if name == "" {
			return nil, configErrorf("localhostProfile must be set if seccompProfile type is Localhost.")
		}
		if !filepath.IsLocal(name) {
			return nil, configErrorf("seccompProfile: localhostProfile %q is outside the node's profiles", name)
		}
		out.LocalhostRef = filepath.Join(n.SeccompProfileRoot, name)
	}
	return out, nil
}

// appArmorProfile returns the container's profile, else that of the pod's
// deprecated annotation for the container, else the pod's
// (pkg/security/apparmor/helpers.go). It returns nil if there is none.
func appArmorProfile(p *v1.Pod, container string, own *v1.SecurityContext, pods *v1.PodSecurityContext) *v1.AppArmorProfile {
	return cmp.Or(
		own.AppArmorProfile,
		annotatedProfile(p.Annotations[v1.DeprecatedAppArmorBetaContainerAnnotationKeyPrefix+container]),
		pods.AppArmorProfile,
	)
}

func annotatedProfile(value string) *v1.AppArmorProfile {
	switch value {
	case "":
		return nil
	case v1.DeprecatedAppArmorBetaProfileRuntimeDefault:
		return &v1.AppArmorProfile{Type: v1.AppArmorProfileTypeRuntimeDefault}
	case v1.DeprecatedAppArmorBetaProfileNameUnconfined:
		return &v1.AppArmorProfile{Type: v1.AppArmorProfileTypeUnconfined}
	}
	if name, ok := strings.CutPrefix(value, v1.DeprecatedAppArmorBetaProfileNamePrefix); ok {
		return &v1.AppArmorProfile{Type: v1.AppArmorProfileTypeLocalhost, LocalhostProfile: &name}
	}
	return &v1.AppArmorProfile{Type: v1.AppArmorProfileType(value)} // apparmor rejects it
}

// apparmor converts the profile to CRI. The kubelet also sets CRI's older form,
// one string. No runtime that has this form needs it.
func apparmor(profile *v1.AppArmorProfile) (*runtimeapi.SecurityProfile, error) {
	if profile == nil {
		return nil, nil
	}
	kind, ok := runtimeapi.SecurityProfile_ProfileType_value[string(profile.Type)]
	if !ok {
		return nil, configErrorf("unknown apparmor profile type: %q", profile.Type)
	}
	out := &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_ProfileType(kind)}
	if profile.Type == v1.AppArmorProfileTypeLocalhost {
		if profile.LocalhostProfile == nil {
			return nil, configErrorf("missing localhost apparmor profile name")
		}
		out.LocalhostRef = *profile.LocalhostProfile
	}
	return out, nil
}
