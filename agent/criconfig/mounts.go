package criconfig

import (
	"errors"
	"fmt"
	"strings"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

const etcHosts = "/etc/hosts"

// mountsOf are the volume mounts in the order of the spec, then /etc/hosts
// unless the container mounts its own, then the termination message's file.
func mountsOf(in *ContainerInput) ([]*runtimeapi.Mount, error) {
	c := in.Container
	var mounts []*runtimeapi.Mount
	hosts := in.HostsFile
	for i := range c.VolumeMounts {
		m, err := volumeMount(in, &c.VolumeMounts[i])
		if err != nil {
			return nil, fmt.Errorf("volumeMounts[%d]: %w", i, err)
		}
		if m.GetContainerPath() == etcHosts {
			hosts = ""
		}
		mounts = append(mounts, m)
	}
	if hosts != "" {
		mounts = append(mounts, &runtimeapi.Mount{HostPath: hosts, ContainerPath: etcHosts})
	}
	if in.HostsFile == "" && len(in.Pod.Spec.HostAliases) > 0 {
		return nil, errors.New("spec.hostAliases: there is no hosts file for them")
	}
	if in.TerminationMessage != "" && c.TerminationMessagePath != "" {
		mounts = append(mounts, &runtimeapi.Mount{
			HostPath:      in.TerminationMessage,
			ContainerPath: absolute(c.TerminationMessagePath),
		})
	}
	return mounts, nil
}

func volumeMount(in *ContainerInput, m *v1.VolumeMount) (*runtimeapi.Mount, error) {
	host, ok := in.Volumes[m.Name]
	switch {
	case !ok || host == "":
		return nil, fmt.Errorf("volume %q is not set up", m.Name)
	case m.SubPath != "" || m.SubPathExpr != "":
		return nil, fmt.Errorf("subPath of volume %q is not supported yet", m.Name)
	case m.MountPropagation != nil && *m.MountPropagation != v1.MountPropagationNone:
		return nil, fmt.Errorf("mountPropagation %s of volume %q is not supported yet", *m.MountPropagation, m.Name)
	}
	return &runtimeapi.Mount{
		HostPath:      host,
		ContainerPath: absolute(m.MountPath),
		Readonly:      m.ReadOnly,
		Propagation:   runtimeapi.MountPropagation_PROPAGATION_PRIVATE,
	}, nil
}

func absolute(path string) string {
	if strings.HasPrefix(path, "/") {
		return path
	}
	return "/" + path
}
