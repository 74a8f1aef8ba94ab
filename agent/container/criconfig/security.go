package criconfig

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Paths of /proc and /sys that expose too much to a container or allow it too
// much (pkg/securitycontext/util.go).
var (
	maskedPaths = []string{
		"/proc/asound", "/proc/acpi", "/proc/interrupts", "/proc/kcore", "/proc/keys",
		"/proc/latency_stats", "/proc/timer_list", "/proc/timer_stats", "/proc/sched_debug",
		"/proc/scsi", "/sys/firmware", "/sys/devices/virtual/powercap",
	}
	readonlyPaths = []string{
		"/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger",
	}
)

// securityContext returns the container's security context. The container's own fields take
// precedence over the pod's, and these over the image's user
// (pkg/kubelet/kuberuntime/security_context.go).
func securityContext(in *ContainerInput) (*runtimeapi.LinuxContainerSecurityContext, error) {
	own, pods := securityContexts(in)
	sc := &runtimeapi.LinuxContainerSecurityContext{
		Capabilities:       capabilities(own.Capabilities),
		Privileged:         isTrue(own.Privileged),
		SelinuxOptions:     selinuxOptions(cmp.Or(own.SELinuxOptions, pods.SELinuxOptions)),
		RunAsUser:          int64Value(cmp.Or(own.RunAsUser, pods.RunAsUser)),
		RunAsGroup:         int64Value(cmp.Or(own.RunAsGroup, pods.RunAsGroup)),
		ReadonlyRootfs:     isTrue(own.ReadOnlyRootFilesystem),
		SupplementalGroups: slices.Concat(fsGroup(pods), pods.SupplementalGroups, in.ExtraGroups),
		NoNewPrivs:         own.AllowPrivilegeEscalation != nil && !*own.AllowPrivilegeEscalation,
	}
	if sc.RunAsUser == nil {
		sc.RunAsUser, sc.RunAsUsername = imageUser(in.Image)
	}
	if own.ProcMount == nil || *own.ProcMount != v1.UnmaskedProcMount {
		sc.MaskedPaths = slices.Clone(maskedPaths)
		sc.ReadonlyPaths = slices.Clone(readonlyPaths)
	}
	var err error
	if sc.Seccomp, err = seccomp(in.Node, own.SeccompProfile, pods.SeccompProfile); err != nil {
		return nil, err
	}
	if sc.Apparmor, err = apparmor(appArmorProfile(in.Pod, in.Container.Name, own, pods)); err != nil {
		return nil, err
	}
	if sc.NamespaceOptions, err = containerNamespaces(in); err != nil {
		return nil, err
	}
	if sc.SupplementalGroupsPolicy, err = groupsPolicy(pods); err != nil {
		return nil, err
	}
	return sc, nil
}

// securityContexts returns the security contexts of the container and of the pod,
// empty if there are none. Callers must not modify them.
func securityContexts(in *ContainerInput) (own *v1.SecurityContext, pods *v1.PodSecurityContext) {
	return cmp.Or(in.Container.SecurityContext, &v1.SecurityContext{}), cmp.Or(in.Pod.Spec.SecurityContext, &v1.PodSecurityContext{})
}

// imageUser returns the image's user, by number or by name; root if the image
// has none.
func imageUser(image *runtimeapi.Image) (uid *runtimeapi.Int64Value, name string) {
	switch {
	case image.GetUid() != nil:
		return &runtimeapi.Int64Value{Value: image.GetUid().GetValue()}, ""
	case image.GetUsername() != "":
		return nil, image.GetUsername()
	}
	return &runtimeapi.Int64Value{}, ""
}

// verifyNonRoot enforces runAsNonRoot with the kubelet's error texts, which
// users search for (verifyRunAsNonRoot in
// pkg/kubelet/kuberuntime/security_context_others.go). It rejects an image's
// user that is a name, because the image's own list of users could map the name
// to root.
func verifyNonRoot(in *ContainerInput) error {
	own, pods := securityContexts(in)
	if !isTrue(cmp.Or(own.RunAsNonRoot, pods.RunAsNonRoot)) {
		return nil
	}
	where := fmt.Sprintf("(pod: \"%s_%s(%s)\", container: %s)", in.Pod.Name, in.Pod.Namespace, in.Pod.UID, in.Container.Name)
	if user := cmp.Or(own.RunAsUser, pods.RunAsUser); user != nil {
		if *user == 0 {
			return configErrorf("container's runAsUser breaks non-root policy %s", where)
		}
		return nil
	}
	uid, name := imageUser(in.Image)
	if uid == nil {
		return configErrorf("container has runAsNonRoot and image has non-numeric user (%s), cannot verify user is non-root %s", name, where)
	}
	if uid.GetValue() == 0 {
		return configErrorf("container has runAsNonRoot and image will run as root %s", where)
	}
	if bad := validation.IsValidUserID(uid.GetValue()); len(bad) > 0 {
		return configErrorf("container has runAsNonRoot and image has an invalid user id (%d). (Must be 1-(%d)): %s %s",
			uid.GetValue(), math.MaxInt32, strings.Join(bad, "; "), where)
	}
	return nil
}

func int64Value(n *int64) *runtimeapi.Int64Value {
	if n == nil {
		return nil
	}
	return &runtimeapi.Int64Value{Value: *n}
}

func fsGroup(pods *v1.PodSecurityContext) []int64 {
	if pods.FSGroup == nil {
		return nil
	}
	return []int64{*pods.FSGroup}
}

func groupsPolicy(pods *v1.PodSecurityContext) (runtimeapi.SupplementalGroupsPolicy, error) {
	if pods.SupplementalGroupsPolicy == nil {
		return runtimeapi.SupplementalGroupsPolicy_Merge, nil
	}
	policy, ok := runtimeapi.SupplementalGroupsPolicy_value[string(*pods.SupplementalGroupsPolicy)]
	if !ok {
		return 0, configErrorf("unsupported supplementalGroupsPolicy: %s", *pods.SupplementalGroupsPolicy)
	}
	return runtimeapi.SupplementalGroupsPolicy(policy), nil
}

func capabilities(c *v1.Capabilities) *runtimeapi.Capability {
	if c == nil {
		return nil
	}
	names := func(list []v1.Capability) []string {
		out := make([]string, len(list))
		for i, name := range list {
			out[i] = string(name)
		}
		return out
	}
	return &runtimeapi.Capability{AddCapabilities: names(c.Add), DropCapabilities: names(c.Drop)}
}

func selinuxOptions(o *v1.SELinuxOptions) *runtimeapi.SELinuxOption {
	if o == nil {
		return nil
	}
	return &runtimeapi.SELinuxOption{User: o.User, Role: o.Role, Type: o.Type, Level: o.Level}
}
