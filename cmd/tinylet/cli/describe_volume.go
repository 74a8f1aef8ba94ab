package cli

import (
	"fmt"
	"strings"

	v1 "k8s.io/api/core/v1"

	volumes "github.com/tinylet/tinylet/agent/podworker/volume"
)

func describeVolumes(t *table, p *v1.Pod) {
	if len(p.Spec.Volumes) == 0 {
		return
	}
	t.add("Volumes:")
	for i := range p.Spec.Volumes {
		v := &p.Spec.Volumes[i]
		name := "  " + v.Name
		for _, line := range volume(&v.VolumeSource) {
			t.add(name, line)
			name = ""
		}
	}
}

// volume formats the kind of a volume and its main fields: in one line, or for a
// projected volume in one more line for each source.
func volume(v *v1.VolumeSource) []string {
	if v.Projected != nil {
		lines := []string{"projected"}
		for i := range v.Projected.Sources {
			lines = append(lines, "  "+projection(&v.Projected.Sources[i]))
		}
		return lines
	}
	text := volumes.KindOf(v)
	switch {
	case v.HostPath != nil:
		text += " " + v.HostPath.Path
		if kind := v.HostPath.Type; kind != nil && *kind != v1.HostPathUnset {
			text += " (" + string(*kind) + ")"
		}
	case v.EmptyDir != nil:
		if v.EmptyDir.Medium == v1.StorageMediumMemory {
			text += " in memory"
		} else if v.EmptyDir.Medium != "" {
			text += " in " + string(v.EmptyDir.Medium)
		}
		if limit := v.EmptyDir.SizeLimit; limit != nil {
			text += ", at most " + limit.String()
		}
	case v.ConfigMap != nil:
		text += " " + v.ConfigMap.Name + items(v.ConfigMap.Items) + optional(v.ConfigMap.Optional)
	case v.Secret != nil:
		text += " " + v.Secret.SecretName + items(v.Secret.Items) + optional(v.Secret.Optional)
	case v.DownwardAPI != nil:
		text += downward(v.DownwardAPI.Items)
	case v.PersistentVolumeClaim != nil:
		text += " " + v.PersistentVolumeClaim.ClaimName
		if v.PersistentVolumeClaim.ReadOnly {
			text += " (read-only)"
		}
	case v.Image != nil:
		text += " " + v.Image.Reference
	case v.CSI != nil:
		text += " " + v.CSI.Driver
	}
	return []string{text}
}

func projection(p *v1.VolumeProjection) string {
	text := volumes.KindOf(p)
	switch {
	case p.ConfigMap != nil:
		return text + " " + p.ConfigMap.Name + items(p.ConfigMap.Items) + optional(p.ConfigMap.Optional)
	case p.Secret != nil:
		return text + " " + p.Secret.Name + items(p.Secret.Items) + optional(p.Secret.Optional)
	case p.DownwardAPI != nil:
		return text + downward(p.DownwardAPI.Items)
	case p.ServiceAccountToken != nil:
		if p.ServiceAccountToken.Audience != "" {
			text += " for " + p.ServiceAccountToken.Audience
		}
		text += " at " + p.ServiceAccountToken.Path
		if p.ServiceAccountToken.ExpirationSeconds != nil {
			text += ", expires after " + seconds(p.ServiceAccountToken.ExpirationSeconds)
		}
		return text
	case p.ClusterTrustBundle != nil:
		return text + " at " + p.ClusterTrustBundle.Path
	}
	return text
}

// items formats the selected keys. An empty list selects all keys.
func items(list []v1.KeyToPath) string {
	var out []string
	for i := range list {
		text := list[i].Key
		if list[i].Path != text {
			text += " at " + list[i].Path
		}
		out = append(out, text)
	}
	if len(out) == 0 {
		return ""
	}
	return ": " + strings.Join(out, ", ")
}

func downward(files []v1.DownwardAPIVolumeFile) string {
	var out []string
	for i := range files {
		f := &files[i]
		switch {
		case f.FieldRef != nil:
			out = append(out, fmt.Sprintf("%s at %s", f.FieldRef.FieldPath, f.Path))
		case f.ResourceFieldRef != nil:
			out = append(out, fmt.Sprintf("%s at %s", resourceField(f.ResourceFieldRef), f.Path))
		}
	}
	if len(out) == 0 {
		return ""
	}
	return ": " + strings.Join(out, ", ")
}
