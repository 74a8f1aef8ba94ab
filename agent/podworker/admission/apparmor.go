package admission

import (
	"errors"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/tinylet/tinylet/agent/pod"
)

// checkAppArmor refuses a profile that nothing would enforce
// (pkg/security/apparmor).
func checkAppArmor(p *v1.Pod, node *Node) *Rejection {
	required, err := appArmorOf(p)
	if required && !node.AppArmor {
		err = errors.New("AppArmor is not enabled on the host")
	}
	if !required || err == nil {
		return nil
	}
	return &Rejection{Reason: ReasonAppArmor, Message: "Cannot enforce AppArmor: " + err.Error()}
}

// appArmorOf says whether the pod asks for a profile, and what is wrong with
// those it asks for. Annotations of before 1.30 count for pods that no API
// server has turned into fields.
func appArmorOf(p *v1.Pod) (required bool, err error) {
	look := func(profile *v1.AppArmorProfile) {
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
		look(s.AppArmorProfile)
	}
	for c := range pod.Containers(&p.Spec) {
		if c.SecurityContext != nil {
			look(c.SecurityContext.AppArmorProfile)
		}
	}
	for key, value := range p.Annotations {
		if strings.HasPrefix(key, v1.DeprecatedAppArmorBetaContainerAnnotationKeyPrefix) && value != v1.DeprecatedAppArmorBetaProfileNameUnconfined {
			required = true
		}
	}
	return required, err
}
