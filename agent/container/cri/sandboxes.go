package cri

import (
	"context"
	"errors"
	"fmt"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// errEmptyResponse means that a response lacks the object.
var errEmptyResponse = errors.New("empty response from container runtime")

// RunPodSandbox implements container.Sandboxes. Its timeout is twice that of
// other calls, as in the kubelet, because the runtime may pull the pause image.
func (d *Driver) RunPodSandbox(ctx context.Context, config *runtimeapi.PodSandboxConfig, handler string) (string, error) {
	limited, cancel := context.WithTimeout(ctx, 2*d.timeout)
	defer cancel()
	r, err := d.runtime.RunPodSandbox(limited, &runtimeapi.RunPodSandboxRequest{Config: config, RuntimeHandler: handler})
	m := config.GetMetadata()
	if err != nil {
		return "", wrap(ctx, err, "run sandbox of pod %s/%s", m.GetNamespace(), m.GetName())
	}
	if r.GetPodSandboxId() == "" {
		return "", fmt.Errorf("run sandbox of pod %s/%s: %w", m.GetNamespace(), m.GetName(), errEmptyResponse)
	}
	return r.GetPodSandboxId(), nil
}

// StopPodSandbox implements container.Sandboxes.
func (d *Driver) StopPodSandbox(ctx context.Context, sandboxID string) error {
	limited, cancel := context.WithTimeout(ctx, d.timeout)
	defer cancel()
	_, err := d.runtime.StopPodSandbox(limited, &runtimeapi.StopPodSandboxRequest{PodSandboxId: sandboxID})
	return ignoreNotFound(wrap(ctx, err, "stop sandbox %q", sandboxID))
}

// RemovePodSandbox implements container.Sandboxes.
func (d *Driver) RemovePodSandbox(ctx context.Context, sandboxID string) error {
	limited, cancel := context.WithTimeout(ctx, d.timeout)
	defer cancel()
	_, err := d.runtime.RemovePodSandbox(limited, &runtimeapi.RemovePodSandboxRequest{PodSandboxId: sandboxID})
	return ignoreNotFound(wrap(ctx, err, "remove sandbox %q", sandboxID))
}

// PodSandboxStatus implements container.Sandboxes.
func (d *Driver) PodSandboxStatus(ctx context.Context, sandboxID string) (*runtimeapi.PodSandboxStatus, error) {
	limited, cancel := context.WithTimeout(ctx, d.timeout)
	defer cancel()
	r, err := d.runtime.PodSandboxStatus(limited, &runtimeapi.PodSandboxStatusRequest{PodSandboxId: sandboxID})
	if err != nil {
		return nil, wrap(ctx, err, "get status of sandbox %q", sandboxID)
	}
	if r.GetStatus() == nil {
		return nil, fmt.Errorf("get status of sandbox %q: %w", sandboxID, errEmptyResponse)
	}
	return r.GetStatus(), nil
}

// ListPodSandbox implements container.Sandboxes.
func (d *Driver) ListPodSandbox(ctx context.Context, filter *runtimeapi.PodSandboxFilter) ([]*runtimeapi.PodSandbox, error) {
	limited, cancel := context.WithTimeout(ctx, d.timeout)
	defer cancel()
	r, err := d.runtime.ListPodSandbox(limited, &runtimeapi.ListPodSandboxRequest{Filter: filter})
	if err != nil {
		return nil, wrap(ctx, err, "list sandboxes")
	}
	return r.GetItems(), nil
}
