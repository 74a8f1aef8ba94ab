package policy

import "github.com/tinylet/tinylet/agent/config/evictionapi"

// Layout is which of the node's file systems are one.
type Layout uint8

// The layouts that upstream knows. nodefs has volumes and logs.
const (
	// OneFs has all on nodefs.
	OneFs Layout = iota
	// ImageFs has images and writable layers on a file system of their own,
	// imagefs; containerfs is imagefs.
	ImageFs
	// SplitFs has images on imagefs, and writable layers on nodefs, which is
	// containerfs.
	SplitFs
)

// LayoutOf is the layout of a node whose images are on another file system
// than nodefs, and whose writable layers are on another one than images.
// Images on nodefs with writable layers elsewhere are ranked and reclaimed by
// upstream like OneFs.
func LayoutOf(imageFs, split bool) Layout {
	switch {
	case !imageFs:
		return OneFs
	case split:
		return SplitFs
	}
	return ImageFs
}

// Thresholds are those that hold for a layout: the ones of containerfs are
// those of nodefs or imagefs, wherever writable layers are
// (UpdateContainerFsThresholds in pkg/kubelet/eviction/helpers.go). Ignored
// are signals of containerfs that were configured, for a warning.
func (l Layout) Thresholds(configured []evictionapi.Threshold) (out []evictionapi.Threshold, ignored []evictionapi.Signal) {
	as := map[evictionapi.Signal]evictionapi.Signal{evictionapi.NodeFsAvailable: evictionapi.ContainerFsAvailable, evictionapi.NodeFsInodesFree: evictionapi.ContainerFsInodesFree}
	if l == ImageFs {
		as = map[evictionapi.Signal]evictionapi.Signal{evictionapi.ImageFsAvailable: evictionapi.ContainerFsAvailable, evictionapi.ImageFsInodesFree: evictionapi.ContainerFsInodesFree}
	}
	for _, t := range configured {
		if t.Signal == evictionapi.ContainerFsAvailable || t.Signal == evictionapi.ContainerFsInodesFree {
			ignored = append(ignored, t.Signal)
			continue
		}
		out = append(out, t)
		if s, ok := as[t.Signal]; ok {
			t.Signal = s
			out = append(out, t)
		}
	}
	return out, ignored
}
