package nodestatus

import (
	"cmp"
	"math"
	"slices"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// maxNames is how many names of one image are reported
// (MaxNamesPerImageInNodeStatus in pkg/kubelet/nodestatus/setters.go).
const maxNames = 5

// images sets the largest images, digests before tags (Images in the same file, and
// ByImageSize in pkg/kubelet/util/sliceutils). A nodeStatusMaxImages of -1 reports
// all.
func images(s *v1.NodeStatus, in *Inputs) {
	if in.Images == nil {
		return
	}
	sorted := slices.SortedFunc(slices.Values(in.Images), func(a, b *runtimeapi.Image) int {
		return cmp.Or(cmp.Compare(b.GetSize(), a.GetSize()), cmp.Compare(b.GetId(), a.GetId()))
	})
	if most := in.Config.Kubelet.NodeStatusMaxImages; most != nil && *most >= 0 && int(*most) < len(sorted) {
		sorted = sorted[:*most]
	}
	s.Images = nil
	for _, image := range sorted {
		// Never nil, which JSON would encode as null.
		names := append([]string{}, image.GetRepoDigests()...)
		names = append(names, image.GetRepoTags()...)
		s.Images = append(s.Images, v1.ContainerImage{
			Names:     names[:min(len(names), maxNames)],
			SizeBytes: int64(min(image.GetSize(), math.MaxInt64)),
		})
	}
}
