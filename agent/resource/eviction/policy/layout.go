package policy

import "github.com/tinylet/tinylet/agent/config/evictionapi"

// Layout is the arrangement of nodefs, imagefs and containerfs.
type Layout uint8

// The layouts that upstream supports. nodefs always holds volumes and logs.
const (
	// OneFs has everything on nodefs.
	OneFs Layout = iota
	// ImageFs has images and writable layers on a separate file system, imagefs.
	// containerfs is imagefs.
	ImageFs
	// SplitFs has images on imagefs, and writable layers on nodefs. containerfs is
	// nodefs.
	SplitFs
)

// LayoutOf returns the layout of a node. imageFs means that images are on another
// file system than nodefs, split that writable layers are on another file system than
// images. For images on nodefs and writable layers elsewhere the result is OneFs:
// upstream ranks and reclaims in that case as for OneFs.
func LayoutOf(imageFs, split bool) Layout {
	switch {
	case !imageFs:
		return OneFs
	case split:
		return SplitFs
	}
	return ImageFs
}

// Thresholds returns the thresholds that apply to a layout. Those of containerfs are
// copies of those of nodefs or imagefs, whichever holds the writable layers
// (UpdateContainerFsThresholds in pkg/kubelet/eviction/helpers.go). ignored holds the
// configured signals of containerfs, for a warning.
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
