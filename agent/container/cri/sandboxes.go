package cri

import (
	"context"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// RunPodSandbox implements container.Sandboxes. Its timeout is twice that of
// other calls, as in the kubelet, because the runtime may pull the pause image.
func (d *Driver) RunPodSandbox(ctx context.Context, config *runtimeapi.PodSandboxConfig, handler string) (string, error) {
	return callFor(ctx, 2*d.timeout, d.runtime.RunPodSandbox, (*runtimeapi.RunPodSandboxResponse).GetPodSandboxId,
		&runtimeapi.RunPodSandboxRequest{Config: config, RuntimeHandler: handler},
		"run sandbox of pod %s/%s", config.GetMetadata().GetNamespace(), config.GetMetadata().GetName())
}

// StopPodSandbox implements container.Sandboxes.
func (d *Driver) StopPodSandbox(ctx context.Context, sandboxID string) error {
	_, err := call(ctx, d.timeout, d.runtime.StopPodSandbox, &runtimeapi.StopPodSandboxRequest{PodSandboxId: sandboxID}, "stop sandbox %q", sandboxID)
	return ignoreNotFound(err)
}

// RemovePodSandbox implements container.Sandboxes.
func (d *Driver) RemovePodSandbox(ctx context.Context, sandboxID string) error {
	_, err := call(ctx, d.timeout, d.runtime.RemovePodSandbox, &runtimeapi.RemovePodSandboxRequest{PodSandboxId: sandboxID}, "remove sandbox %q", sandboxID)
	return ignoreNotFound(err)
}

// PodSandboxStatus implements container.Sandboxes.
func (d *Driver) PodSandboxStatus(ctx context.Context, sandboxID string) (*runtimeapi.PodSandboxStatus, error) {
	return callFor(ctx, d.timeout, d.runtime.PodSandboxStatus, (*runtimeapi.PodSandboxStatusResponse).GetStatus,
		&runtimeapi.PodSandboxStatusRequest{PodSandboxId: sandboxID}, "get status of sandbox %q", sandboxID)
}

// ListPodSandbox implements container.Sandboxes.
func (d *Driver) ListPodSandbox(ctx context.Context, filter *runtimeapi.PodSandboxFilter) ([]*runtimeapi.PodSandbox, error) {
	r, err := call(ctx, d.timeout, d.runtime.ListPodSandbox, &runtimeapi.ListPodSandboxRequest{Filter: filter}, "list sandboxes")
	return r.GetItems(), err
}
