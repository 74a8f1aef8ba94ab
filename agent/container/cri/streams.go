package cri

import (
	"context"
	"fmt"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Exec implements container.Streams.
func (d *Driver) Exec(ctx context.Context, request *runtimeapi.ExecRequest) (string, error) {
	limited, cancel := context.WithTimeout(ctx, d.timeout)
	defer cancel()
	r, err := d.runtime.Exec(limited, request)
	return streamURL(ctx, r.GetUrl(), err, "prepare exec in container %q", request.GetContainerId())
}

// Attach implements container.Streams.
func (d *Driver) Attach(ctx context.Context, request *runtimeapi.AttachRequest) (string, error) {
	limited, cancel := context.WithTimeout(ctx, d.timeout)
	defer cancel()
	r, err := d.runtime.Attach(limited, request)
	return streamURL(ctx, r.GetUrl(), err, "prepare attach to container %q", request.GetContainerId())
}

// PortForward implements container.Streams.
func (d *Driver) PortForward(ctx context.Context, request *runtimeapi.PortForwardRequest) (string, error) {
	limited, cancel := context.WithTimeout(ctx, d.timeout)
	defer cancel()
	r, err := d.runtime.PortForward(limited, request)
	return streamURL(ctx, r.GetUrl(), err, "prepare port-forward to sandbox %q", request.GetPodSandboxId())
}

// streamURL returns the URL of a call that prepares a stream, or its error.
func streamURL(ctx context.Context, url string, err error, format, id string) (string, error) {
	if err != nil {
		return "", wrap(ctx, err, format, id)
	}
	if url == "" {
		return "", fmt.Errorf(format+": %w", id, errEmptyResponse)
	}
	return url, nil
}
