package criconfig

import (
	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// namespaces returns which namespaces the pod's containers share with each other or with the
// node. The user namespace is users if spec.hostUsers is false, and an error if users is nil
// then. Otherwise the node's is set explicitly (pkg/kubelet/userns/userns_manager.go).
func namespaces(p *v1.Pod, users *runtimeapi.UserNamespace) (*runtimeapi.NamespaceOption, error) {
	o := &runtimeapi.NamespaceOption{
		Network:       runtimeapi.NamespaceMode_POD,
		Pid:           runtimeapi.NamespaceMode_CONTAINER,
		Ipc:           runtimeapi.NamespaceMode_POD,
		UsernsOptions: &runtimeapi.UserNamespace{Mode: runtimeapi.NamespaceMode_NODE},
	}
	if p.Spec.HostNetwork {
		o.Network = runtimeapi.NamespaceMode_NODE
	}
	if p.Spec.HostIPC {
		o.Ipc = runtimeapi.NamespaceMode_NODE
	}
	switch {
	case p.Spec.HostPID:
		o.Pid = runtimeapi.NamespaceMode_NODE
	case isTrue(p.Spec.ShareProcessNamespace):
		o.Pid = runtimeapi.NamespaceMode_POD
	}
	if hasUserNamespace(p) {
		if users == nil {
			return nil, configErrorf("can't set `spec.hostUsers: false`, runtime does not support user namespaces")
		}
		o.UsernsOptions = users
	}
	return o, nil
}

// containerNamespaces returns the pod's namespaces. An ephemeral container with a target
// joins the target's PID namespace, unless the pod's containers share one.
func containerNamespaces(in *ContainerInput) (*runtimeapi.NamespaceOption, error) {
	o, err := namespaces(in.Pod, in.Userns)
	if in.TargetID != "" && o.GetPid() == runtimeapi.NamespaceMode_CONTAINER {
		o.Pid, o.TargetId = runtimeapi.NamespaceMode_TARGET, in.TargetID
	}
	return o, err
}

// hasUserNamespace reports whether the pod has a user namespace of its own.
func hasUserNamespace(p *v1.Pod) bool {
	return p.Spec.HostUsers != nil && !*p.Spec.HostUsers
}
