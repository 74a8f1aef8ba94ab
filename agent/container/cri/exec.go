package cri

import (
	"context"
	"fmt"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// ExecSync implements container.Containers. The runtime enforces timeout. The
// driver's own timeout is added to it, for a runtime that hangs.
func (d *Driver) ExecSync(ctx context.Context, containerID string, cmd []string, timeout time.Duration) (stdout, stderr []byte, exitCode int32, err error) {
	limited, cancel := ctx, context.CancelFunc(func() {})
	timeout = max(timeout, 0)
	if timeout > 0 {
		limited, cancel = context.WithTimeout(ctx, addSaturating(d.timeout, timeout))
	}
	defer cancel()
	r := new(runtimeapi.ExecSyncResponse)
	d.calls.Add(1)
	begun := time.Now()
	err = d.execs.call(limited, &runtimeapi.ExecSyncRequest{
		ContainerId: containerID,
		Cmd:         cmd,
		Timeout:     wholeSeconds(timeout),
	}, r)
	d.recordMetrics(runtimeapi.RuntimeService_ExecSync_FullMethodName, r, time.Since(begun), err)
	if err != nil {
		return nil, nil, 0, wrap(ctx, err, "exec in container %q", containerID)
	}
	return r.GetStdout(), r.GetStderr(), r.GetExitCode(), nil
}

// ReopenContainerLog implements container.Containers.
func (d *Driver) ReopenContainerLog(ctx context.Context, containerID string) error {
	limited, cancel := context.WithTimeout(ctx, d.timeout)
	defer cancel()
	_, err := d.runtime.ReopenContainerLog(limited, &runtimeapi.ReopenContainerLogRequest{ContainerId: containerID})
	return wrap(ctx, err, "reopen log of container %q", containerID)
}

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
