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
		return nil, gone(wrap(ctx, err, "status of image %q", image.GetImage()))
	}
	if r.GetImage() != nil && r.GetImage().GetId() == "" {
		return nil, fmt.Errorf("status of image %q: %w", image.GetImage(), errEmpty)
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
		return "", fmt.Errorf("pull image %q: %w", image.GetImage(), errEmpty)
	}
	return r.GetImageRef(), nil
}
