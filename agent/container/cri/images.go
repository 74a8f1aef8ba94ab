package cri

import (
	"context"
	"fmt"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// ImageStatus implements container.Images.
func (d *Driver) ImageStatus(ctx context.Context, image *runtimeapi.ImageSpec) (*runtimeapi.Image, error) {
	r, err := call(ctx, d.timeout, d.images.ImageStatus, &runtimeapi.ImageStatusRequest{Image: image}, "get status of image %q", image.GetImage())
	if err != nil {
		return nil, ignoreNotFound(err)
	}
	if r.GetImage() != nil && r.GetImage().GetId() == "" {
		return nil, fmt.Errorf("get status of image %q: %w", image.GetImage(), errEmptyResponse)
	}
	return r.GetImage(), nil
}

// PullImage implements container.Images.
func (d *Driver) PullImage(ctx context.Context, image *runtimeapi.ImageSpec, auth *runtimeapi.AuthConfig, sandbox *runtimeapi.PodSandboxConfig) (string, error) {
	r, err := d.images.PullImage(ctx, &runtimeapi.PullImageRequest{Image: image, Auth: auth, SandboxConfig: sandbox})
	if err != nil {
		return "", d.wrapPull(ctx, err, image.GetImage())
	}
	if r.GetImageRef() == "" {
		return "", fmt.Errorf("pull image %q: %w", image.GetImage(), errEmptyResponse)
	}
	return r.GetImageRef(), nil
}

// ListImages implements container.Images.
func (d *Driver) ListImages(ctx context.Context, filter *runtimeapi.ImageFilter) ([]*runtimeapi.Image, error) {
	r, err := call(ctx, d.timeout, d.images.ListImages, &runtimeapi.ListImagesRequest{Filter: filter}, "list images")
	return r.GetImages(), err
}

// RemoveImage implements container.Images.
func (d *Driver) RemoveImage(ctx context.Context, image *runtimeapi.ImageSpec) error {
	_, err := call(ctx, d.timeout, d.images.RemoveImage, &runtimeapi.RemoveImageRequest{Image: image}, "remove image %q", image.GetImage())
	return ignoreNotFound(err)
}

// ImageFsInfo implements container.Images.
func (d *Driver) ImageFsInfo(ctx context.Context) (*runtimeapi.ImageFsInfoResponse, error) {
	r, err := call(ctx, d.timeout, d.images.ImageFsInfo, &runtimeapi.ImageFsInfoRequest{}, "get image filesystem info")
	if err == nil && len(r.GetImageFilesystems()) == 0 {
		return nil, fmt.Errorf("get image filesystem info: %w", errEmptyResponse)
	}
	return r, err
}
