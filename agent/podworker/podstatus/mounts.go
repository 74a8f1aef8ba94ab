package podstatus

import v1 "k8s.io/api/core/v1"

// volumeMounts repeats the spec's mounts, and says which of the read-only
// ones are so to the bottom (resolveRecursiveReadOnly in
// pkg/kubelet/kubelet_pods.go, KEP-3857).
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
			if g.RecursiveReadOnly && recursively(&c.VolumeMounts[i]) {
				mode = v1.RecursiveReadOnlyEnabled
			}
			m.RecursiveReadOnly = &mode
		}
		out = append(out, m)
	}
	return out
}

// recursively says whether a read-only mount is to be so to the bottom where
// that can be done. One that propagates cannot.
func recursively(m *v1.VolumeMount) bool {
	if m.RecursiveReadOnly == nil || m.MountPropagation != nil && *m.MountPropagation != v1.MountPropagationNone {
		return false
	}
	switch *m.RecursiveReadOnly {
	case v1.RecursiveReadOnlyEnabled, v1.RecursiveReadOnlyIfPossible:
		return true
	case v1.RecursiveReadOnlyDisabled:
	}
	return false
}
