package volume

import (
	"path/filepath"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/tinylet/tinylet/agent/pod"
)

// nestedMounts returns the paths in a volume at which containers mount other
// volumes. In a read-only volume these mount points have to be created in advance,
// as the kubelet does (pkg/volume/util/nested_volumes.go). Of the paths of one
// container none is below another.
func nestedMounts(p *v1.Pod, volume string) []string {
	var nested []string
	for c := range pod.Containers(&p.Spec) {
		for i := range c.VolumeMounts {
			if c.VolumeMounts[i].Name == volume {
				nested = append(nested, below(c.VolumeMounts, filepath.Clean(c.VolumeMounts[i].MountPath))...)
			}
		}
	}
	return nested
}

// below returns the mount paths below a path, relative to it. It omits those that
// are below another one.
func below(mounts []v1.VolumeMount, path string) []string {
	var inside []string
	for i := range mounts {
		at := filepath.Clean(mounts[i].MountPath)
		if rest, ok := strings.CutPrefix(at, strings.TrimSuffix(path, "/")+"/"); ok && rest != "" && filepath.IsLocal(rest) {
			inside = append(inside, rest)
		}
	}
	return slices.DeleteFunc(inside, func(path string) bool {
		return slices.ContainsFunc(inside, func(above string) bool { return strings.HasPrefix(path, above+"/") })
	})
}
