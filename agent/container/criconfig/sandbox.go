package criconfig

import (
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/tinylet/tinylet/agent/container"
	"github.com/tinylet/tinylet/agent/pod"
)

// SandboxInput is what a sandbox's config is made of.
type SandboxInput struct {
	Pod *v1.Pod
	// Attempt counts the sandboxes that this pod had before.
	Attempt uint32
	Node    *Node
	// Userns are the pod's users where spec.hostUsers is false.
	Userns *runtimeapi.UserNamespace
	// ExtraGroups are the groups that the pod's persistent volumes ask for
	// (annotation pv.beta.kubernetes.io/gid).
	ExtraGroups []int64
	// BootID is the kernel's, to be kept with the sandbox; empty is not known.
	BootID string
}

// SandboxOf is the config of the pod's sandbox. It fails where the pod's host
// name cannot be one, or it wants users of its own and has none. The same
// input gives the same config, as CreateContainer wants it again.
func SandboxOf(in SandboxInput) (*runtimeapi.PodSandboxConfig, error) {
	p, n := in.Pod, in.Node
	dns, _ := dnsOf(p, n)
	sc, err := sandboxSecurity(&in)
	if err != nil {
		return nil, fmt.Errorf("config of the sandbox: %w", err)
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
		Annotations:  shortest(p.Annotations, sandboxShare),
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
			return nil, fmt.Errorf("config of the sandbox: %w", err)
		}
		config.Hostname = name
	}
	return config, nil
}

// sandboxSecurity is that of the sandbox's own process, which bounds what its
// containers can have.
func sandboxSecurity(in *SandboxInput) (*runtimeapi.LinuxSandboxSecurityContext, error) {
	pods := in.Pod.Spec.SecurityContext
	if pods == nil {
		pods = &v1.PodSecurityContext{}
	}
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
		RunAsUser:                id(pods.RunAsUser),
		RunAsGroup:               id(pods.RunAsGroup),
		SupplementalGroups:       slices.Concat(fsGroup(pods), in.ExtraGroups, pods.SupplementalGroups),
		SupplementalGroupsPolicy: policy,
		Privileged:               hasPrivileged(in.Pod),
		// The sandbox's own process needs no more, so that a pod may ask for
		// the least.
		Seccomp: &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_RuntimeDefault},
	}, nil
}

// hasPrivileged says whether any container is, of whatever kind.
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

// sysctls are the pod's kernel parameters by their dotted names, the only
// ones that runtimes understand.
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
