package fake

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// ListImages implements container.Images, sorted by name. As in containerd, the
// filter is ignored.
func (r *Runtime) ListImages(ctx context.Context, filter *runtimeapi.ImageFilter) ([]*runtimeapi.Image, error) {
	return query(ctx, r, "ListImages", filter.GetImage().GetImage(), r.timeout, func() ([]*runtimeapi.Image, error) {
		var list []*runtimeapi.Image
		for _, img := range slices.SortedFunc(maps.Values(r.images), func(a, b *image) int { return strings.Compare(a.name, b.name) }) {
			list = append(list, proto.CloneOf(img.record))
		}
		return list, nil
	})
}

// RemoveImage implements container.Images. As in containerd, an image that is
// in use or pinned is removed, too.
func (r *Runtime) RemoveImage(ctx context.Context, spec *runtimeapi.ImageSpec) error {
	return r.doLocked(ctx, "RemoveImage", spec.GetImage(), r.timeout, func() error {
		if img := r.image(spec.GetImage()); img != nil {
			delete(r.images, img.name)
		}
		return nil
	})
}

// ImageFsInfo implements container.Images: one filesystem, used by the images
// that are present.
func (r *Runtime) ImageFsInfo(ctx context.Context) (*runtimeapi.ImageFsInfoResponse, error) {
	return query(ctx, r, "ImageFsInfo", "", r.timeout, func() (*runtimeapi.ImageFsInfoResponse, error) {
		return &runtimeapi.ImageFsInfoResponse{ImageFilesystems: []*runtimeapi.FilesystemUsage{{
			Timestamp:  time.Now().UnixNano(),
			FsId:       &runtimeapi.FilesystemIdentifier{Mountpoint: r.imageFs},
			UsedBytes:  &runtimeapi.UInt64Value{Value: r.imageBytes()},
			InodesUsed: &runtimeapi.UInt64Value{Value: uint64(len(r.images))},
		}}}, nil
	})
}

// ImageBytes returns the size of all present images, in bytes. It is not
// recorded as a call.
func (r *Runtime) ImageBytes() uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.imageBytes()
}

func (r *Runtime) imageBytes() (sum uint64) {
	for _, img := range r.images {
		sum += img.record.GetSize()
	}
	return sum
}
