package criconfig

import (
	"cmp"
	"path/filepath"
	"strings"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// DefaultSeccompProfileRoot is the kubelet's directory of seccomp profiles.
const DefaultSeccompProfileRoot = "/var/lib/kubelet/seccomp"

// seccomp returns the profile of the container, else of the pod, else the
// runtime's default profile with Node.SeccompDefault, else unconfined.
func seccomp(n *Node, own, pods *v1.SeccompProfile) (*runtimeapi.SecurityProfile, error) {
	profile := cmp.Or(own, pods)
	kind := v1.SeccompProfileTypeUnconfined
	switch {
	case profile != nil:
		kind = profile.Type
	case n.SeccompDefault:
		kind = v1.SeccompProfileTypeRuntimeDefault
	}
	switch kind {
	case v1.SeccompProfileTypeRuntimeDefault:
		return &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_RuntimeDefault}, nil
	case v1.SeccompProfileTypeLocalhost:
		if profile.LocalhostProfile == nil || *profile.LocalhostProfile == "" {
			return nil, configErrorf("localhostProfile must be set if seccompProfile type is Localhost.")
		}
		if !filepath.IsLocal(*profile.LocalhostProfile) {
			return nil, configErrorf("seccompProfile: localhostProfile %q is outside the node's profiles", *profile.LocalhostProfile)
		}
		root := cmp.Or(n.SeccompProfileRoot, DefaultSeccompProfileRoot)
		return &runtimeapi.SecurityProfile{
			ProfileType:  runtimeapi.SecurityProfile_Localhost,
			LocalhostRef: filepath.Join(root, *profile.LocalhostProfile),
		}, nil
	case v1.SeccompProfileTypeUnconfined:
		return &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_Unconfined}, nil
	}
	return nil, configErrorf("unknown seccomp profile type: %q", kind)
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
	switch profile.Type {
	case v1.AppArmorProfileTypeRuntimeDefault:
		return &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_RuntimeDefault}, nil
	case v1.AppArmorProfileTypeUnconfined:
		return &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_Unconfined}, nil
	case v1.AppArmorProfileTypeLocalhost:
		if profile.LocalhostProfile == nil {
			return nil, configErrorf("missing localhost apparmor profile name")
		}
		return &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_Localhost, LocalhostRef: *profile.LocalhostProfile}, nil
	}
	return nil, configErrorf("unknown apparmor profile type: %q", profile.Type)
}
