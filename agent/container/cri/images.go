package cri

import (
	"context"
	"fmt"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// ImageStatus implements container.Images.
func (d *Driver) ImageStatus(ctx context.Context, image *runtimeapi.ImageSpec) (*runtimeapi.Image, error) {
	limited, cancel := context.WithTimeout(ctx, d.timeout)
	defer cancel()
	r, err := d.images.ImageStatus(limited, &runtimeapi.ImageStatusRequest{Image: image})
	if err != nil {
		return nil, ignoreNotFound(wrap(ctx, err, "get status of image %q", image.GetImage()))
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
		return "", wrap(ctx, err, "pull image %q", image.GetImage())
	}
	if r.GetImageRef() == "" {
		return "", fmt.Errorf("pull image %q: %w", image.GetImage(), errEmptyResponse)
	}
	return r.GetImageRef(), nil
}

// ListImages implements container.Images.
func (d *Driver) ListImages(ctx context.Context, filter *runtimeapi.ImageFilter) ([]*runtimeapi.Image, error) {
	limited, cancel := context.WithTimeout(ctx, d.timeout)
	defer cancel()
	r, err := d.images.ListImages(limited, &runtimeapi.ListImagesRequest{Filter: filter})
	if err != nil {
		return nil, wrap(ctx, err, "list images")
	}
	return r.GetImages(), nil
}

// RemoveImage implements container.Images.
func (d *Driver) RemoveImage(ctx context.Context, image *runtimeapi.ImageSpec) error {
	limited, cancel := context.WithTimeout(ctx, d.timeout)
	defer cancel()
	_, err := d.images.RemoveImage(limited, &runtimeapi.RemoveImageRequest{Image: image})
	return ignoreNotFound(wrap(ctx, err, "remove image %q", image.GetImage()))
}

// ImageFsInfo implements container.Images.
func (d *Driver) ImageFsInfo(ctx context.Context) (*runtimeapi.ImageFsInfoResponse, error) {
	limited, cancel := context.WithTimeout(ctx, d.timeout)
	defer cancel()
	r, err := d.images.ImageFsInfo(limited, &runtimeapi.ImageFsInfoRequest{})
	if err != nil {
		return nil, wrap(ctx, err, "get image filesystem info")
	}
	if len(r.GetImageFilesystems()) == 0 {
		return nil, fmt.Errorf("get image filesystem info: %w", errEmptyResponse)
	}
	return r, nil
}
