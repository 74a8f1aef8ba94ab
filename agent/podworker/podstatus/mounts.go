package podstatus

import v1 "k8s.io/api/core/v1"

// volumeMounts returns the status of the spec's mounts, and marks the recursive
// read-only ones (resolveRecursiveReadOnly in pkg/kubelet/kubelet_pods.go,
// KEP-3857).
func (g *generator) volumeMounts(c *v1.Container) []v1.VolumeMountStatus {
	if len(c.VolumeMounts) == 0 {
		return nil
	}
	out := make([]v1.VolumeMountStatus, 0, len(c.VolumeMounts))
	for i := range c.VolumeMounts {
		m := v1.VolumeMountStatus{
			Name:      c.VolumeMounts[i].Name,
			MountPath: c.VolumeMounts[i].MountPath,
			ReadOnly:  c.VolumeMounts[i].ReadOnly,
		}
		if m.ReadOnly {
			mode := v1.RecursiveReadOnlyDisabled
			if g.RecursiveReadOnly && isRecursive(&c.VolumeMounts[i]) {
				mode = v1.RecursiveReadOnlyEnabled
			}
			m.RecursiveReadOnly = &mode
		}
		out = append(out, m)
	}
	return out
}

// isRecursive reports whether a read-only mount is recursively read-only where that is
// supported. A mount with propagation is not.
func isRecursive(m *v1.VolumeMount) bool {
	if m.RecursiveReadOnly == nil || m.MountPropagation != nil && *m.MountPropagation != v1.MountPropagationNone {
		return false
	}
	mode := *m.RecursiveReadOnly
	return mode == v1.RecursiveReadOnlyEnabled || mode == v1.RecursiveReadOnlyIfPossible
}
