package volume

import (
	"os"
	"path/filepath"
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/tinylet/tinylet/agent/resource/diskusage"
)

// UsagePaths returns the paths of the pod's volumes whose disk usage can be measured,
// whether or not they are set up, and of the pod's other files. As under a
// kubelet, it omits volumes without a directory of the pod: image volumes, and
// hostPath, also through a claim.
//
// bound returns the name of the PersistentVolume that a claim in the pod's
// namespace is bound to, or an empty string. It is called only if the pod has several
// claims or local volumes, so that its directories do not identify the claim's volume. If
// the pod has claims, UsagePaths blocks on the disk and on bound.
func (v *Manager) UsagePaths(p *v1.Pod, bound func(claim string) (volume string)) (volumes []diskusage.Volume, other []diskusage.Place) {
	uid := string(p.UID)
	if checkComponent(uid) != nil {
		return nil, nil
	}
	root := filepath.Join(v.root, dirPods)
	claims := v.claims(p)
	volumes = make([]diskusage.Volume, 0, len(p.Spec.Volumes))
	for i := range p.Spec.Volumes {
		volume := diskusage.Volume{Name: p.Spec.Volumes[i].Name}
		plugin, name := "", volume.Name
		switch source := &p.Spec.Volumes[i].VolumeSource; {
		case source.EmptyDir != nil:
			plugin = dirEmptyDir
			volume.Mounted = source.EmptyDir.Medium != v1.StorageMediumDefault
			volume.Ephemeral = !volume.Mounted
		case source.ConfigMap != nil:
			plugin, volume.Ephemeral = dirConfigMap, true
		case source.Secret != nil, source.DownwardAPI != nil, source.Projected != nil:
			plugin, volume.Mounted = pluginDir(source), true
		case source.PersistentVolumeClaim != nil:
			volume.Claim = source.PersistentVolumeClaim.ClaimName
			plugin, name, volume.Mounted = dirLocal, claims.volume(volume.Claim, bound), true
		}
		if plugin == "" || checkComponent(name) != nil {
			continue
		}
		volume.Place = diskusage.Place{Root: root, Path: filepath.Join(uid, dirVolumes, plugin, name)}
		volumes = append(volumes, volume)
	}
	return volumes, []diskusage.Place{
		{Root: root, Path: filepath.Join(uid, fileHosts)},
		{Root: root, Path: filepath.Join(uid, dirContainers)}, // the termination messages
	}
}

// claimDirs has the names of a pod's claims, and of its local volumes.
type claimDirs struct {
	claims, dirs []string
}

func (v *Manager) claims(p *v1.Pod) (c claimDirs) {
	for i := range p.Spec.Volumes {
		if claim := p.Spec.Volumes[i].PersistentVolumeClaim; claim != nil && !slices.Contains(c.claims, claim.ClaimName) {
			c.claims = append(c.claims, claim.ClaimName)
		}
	}
	if len(c.claims) == 0 {
		return c
	}
	entries, err := os.ReadDir(filepath.Join(v.root, dirPods, string(p.UID), dirVolumes, dirLocal))
	if err != nil {
		return c // none is set up
	}
	for _, e := range entries {
		c.dirs = append(c.dirs, e.Name())
	}
	return c
}

// volume returns the name of a claim's local volume, or an empty string.
func (c *claimDirs) volume(claim string, bound func(string) string) string {
	if len(c.claims) == 1 && len(c.dirs) == 1 {
		return c.dirs[0]
	}
	if len(c.dirs) == 0 {
		return ""
	}
	if name := bound(claim); slices.Contains(c.dirs, name) {
		return name
	}
	return ""
}
