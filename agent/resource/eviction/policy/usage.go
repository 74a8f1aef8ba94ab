package policy

import (
	v1 "k8s.io/api/core/v1"

	"github.com/tinylet/tinylet/agent/config/evictionapi"
	"github.com/tinylet/tinylet/agent/pod"
)

// storageParts selects which parts of a pod's storage count for a file system.
type storageParts struct {
	rootfs, logs, volumes bool
}

// storageParts returns which parts of a pod's storage are on the file system of a signal
// (buildSignalToRankFunc in pkg/kubelet/eviction/helpers.go). No image layer belongs
// to a single pod, so if the file system holds only images, all pods rank the same.
func (l Layout) storageParts(s evictionapi.Signal) storageParts {
	if l == OneFs {
		return storageParts{rootfs: true, logs: true, volumes: true}
	}
	switch s {
	case evictionapi.NodeFsAvailable, evictionapi.NodeFsInodesFree:
		return storageParts{rootfs: l == SplitFs, logs: true, volumes: true}
	case evictionapi.ContainerFsAvailable, evictionapi.ContainerFsInodesFree:
		return storageParts{rootfs: true, logs: l == SplitFs, volumes: l == SplitFs}
	default:
		return storageParts{rootfs: l == ImageFs}
	}
}

// diskUsage returns the usage of a pod in the selected places, in bytes or inodes.
func diskUsage(p *Pod, in storageParts, inodes bool) (sum int64) {
	add := func(d *Disk) {
		f := d.Bytes
		if inodes {
			f = d.Inodes
		}
		sum = pod.AddSaturating(sum, max(f.Value, 0))
	}
	for i := range p.Containers {
		c := &p.Containers[i]
		if in.rootfs {
			add(&c.Rootfs)
		}
		if in.logs {
			add(&c.Logs)
		}
	}
	if in.volumes {
		for i := range p.Volumes {
			if isLocalVolume(p.Pod, p.Volumes[i].Name) {
				add(&p.Volumes[i].Disk)
			}
		}
	}
	return sum
}

// isLocalVolume reports whether a volume is on the node's disk (localVolumeNames in
// pkg/kubelet/eviction/helpers.go).
func isLocalVolume(p *v1.Pod, name string) bool {
	for i := range p.Spec.Volumes {
		v := &p.Spec.Volumes[i]
		if v.Name != name {
			continue
		}
		return v.HostPath != nil || v.GitRepo != nil || v.ConfigMap != nil ||
			v.EmptyDir != nil && v.EmptyDir.Medium == v1.StorageMediumDefault
	}
	return false
}
