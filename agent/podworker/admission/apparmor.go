package admission

import (
	"errors"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/tinylet/tinylet/agent/node/nodeinfo"
	"github.com/tinylet/tinylet/agent/pod"
)

// checkAppArmor rejects a pod whose AppArmor profile cannot be enforced
// (pkg/security/apparmor).
func checkAppArmor(p *v1.Pod, node *nodeinfo.Admission) *Rejection {
	required, err := appArmorOf(p)
	if required && !node.AppArmor {
		err = errors.New("AppArmor is not enabled on the host")
	}
	if !required || err == nil {
		return nil
	}
	return &Rejection{Reason: ReasonAppArmor, Message: "Cannot enforce AppArmor: " + err.Error()}
}

// appArmorOf reports whether the pod requires a profile, and returns an error if
// one of its profiles is invalid. The annotations used before 1.30 count too,
// for pods whose annotations no API server has converted to fields.
func appArmorOf(p *v1.Pod) (required bool, err error) {
	check := func(profile *v1.AppArmorProfile) {
		if profile == nil || profile.Type == v1.AppArmorProfileTypeUnconfined {
			return
		}
		required = true
		if profile.Type == v1.AppArmorProfileTypeLocalhost &&
			(profile.LocalhostProfile == nil || strings.TrimSpace(*profile.LocalhostProfile) == "") {
			err = errors.New("invalid empty AppArmor profile name")
		}
	}
	if s := p.Spec.SecurityContext; s != nil {
		check(s.AppArmorProfile)
	}
	for c := range pod.Containers(&p.Spec) {
		if c.SecurityContext != nil {
			check(c.SecurityContext.AppArmorProfile)
		}
	}
	for key, value := range p.Annotations {
		if strings.HasPrefix(key, v1.DeprecatedAppArmorBetaContainerAnnotationKeyPrefix) && value != v1.DeprecatedAppArmorBetaProfileNameUnconfined {
			required = true
		}
	}
	return required, err
}
