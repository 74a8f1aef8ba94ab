package criconfig

import (
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/utils/ptr"
)

const etcHosts = "/etc/hosts"

// mountsOf returns the volume mounts in the order of the spec, then /etc/hosts
// unless the container mounts its own, then the termination message file.
func mountsOf(in *ContainerInput, env *environment) ([]*runtimeapi.Mount, error) {
	c := in.Container
	var mounts []*runtimeapi.Mount
	hosts := in.HostsFile
	for i := range c.VolumeMounts {
		m, err := volumeMount(in, i, env)
		if err != nil {
			return nil, fmt.Errorf("volumeMounts[%d]: %w", i, err)
		}
		if m.GetContainerPath() == etcHosts {
			hosts = ""
		}
		mounts = append(mounts, m)
	}
	if hosts != "" {
		mounts = append(mounts, &runtimeapi.Mount{HostPath: hosts, ContainerPath: etcHosts, SelinuxRelabel: in.Node.SELinux})
	}
	if in.HostsFile == "" && len(in.Pod.Spec.HostAliases) > 0 {
		return nil, configErrorf("spec.hostAliases: no hosts file")
	}
	if in.TerminationMessage != "" && c.TerminationMessagePath != "" {
		mounts = append(mounts, &runtimeapi.Mount{
			HostPath:       in.TerminationMessage,
			ContainerPath:  absolute(c.TerminationMessagePath),
			SelinuxRelabel: in.Node.SELinux,
		})
	}
	if hasUserNamespace(in.Pod) {
		for _, m := range mounts {
			m.UidMappings, m.GidMappings = in.Userns.GetUids(), in.Userns.GetGids()
		}
	}
	return mounts, nil
}

// volumeMount builds one mount of a volume (makeMounts in
// pkg/kubelet/kubelet_pods.go).
func volumeMount(in *ContainerInput, i int, env *environment) (*runtimeapi.Mount, error) {
	m := &in.Container.VolumeMounts[i]
	out := &runtimeapi.Mount{ContainerPath: absolute(m.MountPath)}
	sub, err := subPath(m, env)
	if err != nil {
		return nil, err
	}
	readOnly, relabel := volumeAttributes(in.Pod, m.Name)
	if out.Image = in.ImageVolumes[m.Name]; out.Image != nil {
		out.ImageSubPath, readOnly = sub, true
	} else if out.HostPath, err = hostPath(in, i, sub); err != nil {
		return nil, err
	}
	if out.Propagation, err = propagation(in.Container, m); err != nil {
		return nil, err
	}
	if out.RecursiveReadOnly, err = recursiveReadOnly(m, in.RecursiveReadOnly); err != nil {
		return nil, configErrorf("failed to resolve recursive read-only mode: %w", err)
	}
	out.Readonly = m.ReadOnly || readOnly || in.ReadOnlyVolumes[m.Name]
	out.SelinuxRelabel = in.Node.SELinux && relabel
	return out, nil
}

// hostPath returns the host path of the mount's volume, or of the resolved
// subPath below it.
func hostPath(in *ContainerInput, i int, sub string) (string, error) {
	name := in.Container.VolumeMounts[i].Name
	path := in.Volumes[name]
	switch {
	case path == "":
		return "", configErrorf("cannot find volume %q to mount into container %q", name, in.Container.Name)
	case sub == "":
		return path, nil
	}
	if path = in.SubPaths[i]; path == "" {
		return "", configErrorf("failed to prepare subPath for volumeMount %q of container %q", name, in.Container.Name)
	}
	return path, nil
}

// volumeAttributes returns what depends only on a volume's type (GetAttributes of each plugin
// in pkg/volume). relabel reports whether the volume's files belong to the pod, so that they
// can get the SELinux label of the container.
func volumeAttributes(p *v1.Pod, name string) (readOnly, relabel bool) {
	i := slices.IndexFunc(p.Spec.Volumes, func(v v1.Volume) bool { return v.Name == name })
	if i < 0 {
		return false, false
	}
	v := &p.Spec.Volumes[i]
	readOnly = v.ConfigMap != nil || v.Secret != nil || v.DownwardAPI != nil || v.Projected != nil
	return readOnly, readOnly || v.EmptyDir != nil
}

func propagation(c *v1.Container, m *v1.VolumeMount) (runtimeapi.MountPropagation, error) {
	switch ptr.Deref(m.MountPropagation, v1.MountPropagationNone) {
	case v1.MountPropagationNone:
		return runtimeapi.MountPropagation_PROPAGATION_PRIVATE, nil
	case v1.MountPropagationHostToContainer:
		return runtimeapi.MountPropagation_PROPAGATION_HOST_TO_CONTAINER, nil
	case v1.MountPropagationBidirectional:
		if !isPrivileged(c) {
			return 0, configErrorf("Bidirectional mount propagation is available only to privileged containers")
		}
		return runtimeapi.MountPropagation_PROPAGATION_BIDIRECTIONAL, nil
	}
	return 0, configErrorf("invalid MountPropagation mode: %q", *m.MountPropagation)
}

// recursiveReadOnly reports whether mounts below the volume are read-only too (KEP-3857).
// supported reports whether the runtime handler supports it.
func recursiveReadOnly(m *v1.VolumeMount, supported bool) (bool, error) {
	if m.RecursiveReadOnly == nil || *m.RecursiveReadOnly == v1.RecursiveReadOnlyDisabled {
		return false, nil
	}
	if !m.ReadOnly {
		return false, fmt.Errorf("volume %q requested recursive read-only mode, but it is not read-only", m.Name)
	}
	if how := m.MountPropagation; how != nil && *how != v1.MountPropagationNone {
		return false, fmt.Errorf("volume %q requested recursive read-only mode, but it is not compatible with propagation %q", m.Name, *how)
	}
	switch *m.RecursiveReadOnly {
	case v1.RecursiveReadOnlyIfPossible:
		return supported, nil
	case v1.RecursiveReadOnlyEnabled:
		if !supported {
			return false, fmt.Errorf("volume %q requested recursive read-only mode, but it is not supported by the runtime", m.Name)
		}
		return true, nil
	case v1.RecursiveReadOnlyDisabled:
	}
	return false, fmt.Errorf("unknown recursive read-only mode %q", *m.RecursiveReadOnly)
}

func absolute(path string) string {
	if strings.HasPrefix(path, "/") {
		return path
	}
	return "/" + path
}
