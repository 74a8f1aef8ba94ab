package criconfig

import (
	"fmt"
	"maps"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Sandbox is the config of the pod's sandbox; attempt counts the sandboxes
// that this pod had before. It fails where the pod's host name cannot be
// one. The same pod and node give the same config, as CreateContainer wants
// it again.
func Sandbox(p *v1.Pod, attempt uint32, n *Node) (*runtimeapi.PodSandboxConfig, error) {
	config := &runtimeapi.PodSandboxConfig{
		Metadata: &runtimeapi.PodSandboxMetadata{
			Name:      p.Name,
			Namespace: p.Namespace,
			Uid:       string(p.UID),
			Attempt:   attempt,
		},
		LogDirectory: LogDirectory(p, n),
		DnsConfig:    dnsOf(p, n),
		PortMappings: portMappings(p),
		Labels:       sandboxLabels(p),
		Annotations:  maps.Clone(p.Annotations),
		Linux: &runtimeapi.LinuxPodSandboxConfig{
			CgroupParent: PodCgroup(p, n),
			SecurityContext: &runtimeapi.LinuxSandboxSecurityContext{
				NamespaceOptions: namespaces(p),
				// The sandbox's own process needs no more, so that a pod may ask
				// for the least.
				Seccomp: &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_RuntimeDefault},
			},
			Overhead:  &runtimeapi.LinuxContainerResources{},
			Resources: sandboxResources(p, n),
		},
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

// namespaces are what the pod's containers share. The users are the node's,
// which is said in so many words (pkg/kubelet/userns/userns_manager.go).
func namespaces(p *v1.Pod) *runtimeapi.NamespaceOption {
	o := &runtimeapi.NamespaceOption{
		Network:       runtimeapi.NamespaceMode_POD,
		Pid:           runtimeapi.NamespaceMode_CONTAINER,
		Ipc:           runtimeapi.NamespaceMode_POD,
		UsernsOptions: &runtimeapi.UserNamespace{Mode: runtimeapi.NamespaceMode_NODE},
	}
	if p.Spec.HostNetwork {
		o.Network = runtimeapi.NamespaceMode_NODE
	}
	return o
}
