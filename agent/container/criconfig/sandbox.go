package criconfig

import (
	"cmp"
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/tinylet/tinylet/agent/container"
	"github.com/tinylet/tinylet/agent/pod"
)

// SandboxInput is the input of SandboxConfig.
type SandboxInput struct {
	Pod *v1.Pod
	// Attempt is the number of earlier sandboxes of this pod.
	Attempt uint32
	Node    *Node
	// Userns is the pod's user namespace if spec.hostUsers is false.
	Userns *runtimeapi.UserNamespace
	// ExtraGroups are the supplemental groups that the pod's persistent volumes
	// request (annotation pv.beta.kubernetes.io/gid).
	ExtraGroups []int64
	// BootID is the kernel's boot ID, to be stored with the sandbox; "" if
	// unknown.
	BootID string
}

// SandboxConfig builds the CRI config of the pod's sandbox. It fails if the pod's hostname or
// supplementalGroupsPolicy is invalid, or if the pod needs a user namespace and has none. The
// same input gives the same config, which CreateContainer requires.
func SandboxConfig(in SandboxInput) (*runtimeapi.PodSandboxConfig, error) {
	p, n := in.Pod, in.Node
	dns, _ := dnsOf(p, n)
	sc, err := sandboxSecurity(&in)
	if err != nil {
		return nil, fmt.Errorf("build sandbox config: %w", err)
	}
	config := &runtimeapi.PodSandboxConfig{
		Metadata: &runtimeapi.PodSandboxMetadata{
			Name:      p.Name,
			Namespace: p.Namespace,
			Uid:       string(p.UID),
			Attempt:   in.Attempt,
		},
		LogDirectory: LogDirectory(p, n),
		DnsConfig:    dns,
		PortMappings: portMappings(p),
		Labels:       sandboxLabels(p),
		Annotations:  fitEntries(p.Annotations, sandboxShare),
		Linux: &runtimeapi.LinuxPodSandboxConfig{
			CgroupParent:    PodCgroup(p, n),
			SecurityContext: sc,
			Sysctls:         sysctls(p),
			Overhead:        overheadResources(p, n),
			Resources:       sandboxResources(p, n),
		},
	}
	if in.BootID != "" {
		if config.Annotations == nil {
			config.Annotations = make(map[string]string, 1)
		}
		config.Annotations[container.AnnotationBoot] = in.BootID
	}
	if !p.Spec.HostNetwork {
		name, err := kernelHostname(p, n)
		if err != nil {
			return nil, fmt.Errorf("build sandbox config: %w", err)
		}
		config.Hostname = name
	}
	return config, nil
}

// sandboxSecurity returns the security context of the sandbox's own process,
// which bounds that of its containers.
func sandboxSecurity(in *SandboxInput) (*runtimeapi.LinuxSandboxSecurityContext, error) {
	pods := cmp.Or(in.Pod.Spec.SecurityContext, &v1.PodSecurityContext{})
	namespaces, err := namespaces(in.Pod, in.Userns)
	if err != nil {
		return nil, err
	}
	policy, err := groupsPolicy(pods)
	if err != nil {
		return nil, err
	}
	return &runtimeapi.LinuxSandboxSecurityContext{
		NamespaceOptions:         namespaces,
		SelinuxOptions:           selinuxOptions(pods.SELinuxOptions),
		RunAsUser:                int64Value(pods.RunAsUser),
		RunAsGroup:               int64Value(pods.RunAsGroup),
		SupplementalGroups:       slices.Concat(fsGroup(pods), in.ExtraGroups, pods.SupplementalGroups),
		SupplementalGroupsPolicy: policy,
		Privileged:               hasPrivileged(in.Pod),
		// The sandbox's own process needs no more than this profile, so that
		// the pod's own profile may be stricter.
		Seccomp: &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_RuntimeDefault},
	}, nil
}

// hasPrivileged reports whether any container of any kind is privileged.
func hasPrivileged(p *v1.Pod) bool {
	for c := range pod.Containers(&p.Spec) {
		if isPrivileged(c) {
			return true
		}
	}
	return false
}

func isPrivileged(c *v1.Container) bool {
	return c.SecurityContext != nil && isTrue(c.SecurityContext.Privileged)
}

// sysctls returns the pod's sysctls by their dotted names, the only ones that
// runtimes accept.
func sysctls(p *v1.Pod) map[string]string {
	if p.Spec.SecurityContext == nil || len(p.Spec.SecurityContext.Sysctls) == 0 {
		return nil
	}
	out := make(map[string]string, len(p.Spec.SecurityContext.Sysctls))
	for _, s := range p.Spec.SecurityContext.Sysctls {
		out[pod.SysctlName(s.Name)] = s.Value
	}
	return out
}
