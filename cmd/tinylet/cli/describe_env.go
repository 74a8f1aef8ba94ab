package cli

import (
	"fmt"
	"strings"

	v1 "k8s.io/api/core/v1"
)

// environment has a line for each variable, and for each source of many. A
// value that is not in the pod's own spec is named and not shown: a secret
// stays one.
func environment(c *v1.Container) []string {
	var out []string
	for i := range c.EnvFrom {
		out = append(out, envFrom(&c.EnvFrom[i]))
	}
	for i := range c.Env {
		e := &c.Env[i]
		if e.ValueFrom == nil {
			out = append(out, e.Name+"="+e.Value)
			continue
		}
		out = append(out, e.Name+" from "+envSource(e.ValueFrom))
	}
	return out
}

func envFrom(e *v1.EnvFromSource) string {
	text := "all"
	if e.Prefix != "" {
		text = e.Prefix + "*"
	}
	switch {
	case e.ConfigMapRef != nil:
		return text + " from configMap " + e.ConfigMapRef.Name + optional(e.ConfigMapRef.Optional)
	case e.SecretRef != nil:
		return text + " from secret " + e.SecretRef.Name + optional(e.SecretRef.Optional)
	}
	return text + " from nothing"
}

func envSource(s *v1.EnvVarSource) string {
	switch {
	case s.FieldRef != nil:
		return "field " + s.FieldRef.FieldPath
	case s.ResourceFieldRef != nil:
		return resourceField(s.ResourceFieldRef)
	case s.ConfigMapKeyRef != nil:
		return fmt.Sprintf("key %s of configMap %s", s.ConfigMapKeyRef.Key, s.ConfigMapKeyRef.Name) + optional(s.ConfigMapKeyRef.Optional)
	case s.SecretKeyRef != nil:
		return fmt.Sprintf("key %s of secret %s", s.SecretKeyRef.Key, s.SecretKeyRef.Name) + optional(s.SecretKeyRef.Optional)
	case s.FileKeyRef != nil:
		f := s.FileKeyRef
		return fmt.Sprintf("key %s of file %s in volume %s", f.Key, f.Path, f.VolumeName) + optional(f.Optional)
	}
	return "nothing"
}

func resourceField(r *v1.ResourceFieldSelector) string {
	text := "resource " + r.Resource
	if r.ContainerName != "" {
		text += " of container " + r.ContainerName
	}
	if !r.Divisor.IsZero() {
		text += " in " + r.Divisor.String()
	}
	return text
}

func optional(is *bool) string {
	if is != nil && *is {
		return " (optional)"
	}
	return ""
}

// mounts has a line for each mount and device.
func mounts(c *v1.Container) []string {
	var out []string
	for i := range c.VolumeMounts {
		m := &c.VolumeMounts[i]
		text := m.MountPath + " from " + m.Name
		if sub := m.SubPath + m.SubPathExpr; sub != "" {
			text += "/" + strings.TrimPrefix(sub, "/")
		}
		var more []string
		if m.ReadOnly {
			more = append(more, "read-only")
		}
		if m.RecursiveReadOnly != nil && *m.RecursiveReadOnly != v1.RecursiveReadOnlyDisabled {
			more = append(more, "with what is mounted in it")
		}
		if p := m.MountPropagation; p != nil && *p != v1.MountPropagationNone {
			more = append(more, "propagation "+string(*p))
		}
		if len(more) > 0 {
			text += " (" + strings.Join(more, ", ") + ")"
		}
		out = append(out, text)
	}
	for i := range c.VolumeDevices {
		out = append(out, c.VolumeDevices[i].DevicePath+" is "+c.VolumeDevices[i].Name)
	}
	return out
}
