package cri

import (
	"context"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/tinylet/tinylet/agent/pod"
)

// ExecSync implements container.Containers. The runtime enforces timeout. The driver ends
// the call when its own timeout has passed in addition, in case the runtime hangs. Without
// timeout only ctx ends the call.
func (d *Driver) ExecSync(ctx context.Context, containerID string, cmd []string, timeout time.Duration) (stdout, stderr []byte, exitCode int32, err error) {
	limited, cancel := ctx, context.CancelFunc(func() {})
	timeout = max(timeout, 0)
	if timeout > 0 {
		limited, cancel = context.WithTimeout(ctx, pod.AddSaturating(timeout, d.timeout))
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
	_, err := call(ctx, d.timeout, d.runtime.ReopenContainerLog, &runtimeapi.ReopenContainerLogRequest{ContainerId: containerID}, "reopen log of container %q", containerID)
	return err
}

// Exec implements container.Streams.
func (d *Driver) Exec(ctx context.Context, request *runtimeapi.ExecRequest) (string, error) {
	return callFor(ctx, d.timeout, d.runtime.Exec, (*runtimeapi.ExecResponse).GetUrl, request, "prepare exec in container %q", request.GetContainerId())
}

// Attach implements container.Streams.
func (d *Driver) Attach(ctx context.Context, request *runtimeapi.AttachRequest) (string, error) {
	return callFor(ctx, d.timeout, d.runtime.Attach, (*runtimeapi.AttachResponse).GetUrl, request, "prepare attach to container %q", request.GetContainerId())
}

// PortForward implements container.Streams.
func (d *Driver) PortForward(ctx context.Context, request *runtimeapi.PortForwardRequest) (string, error) {
	return callFor(ctx, d.timeout, d.runtime.PortForward, (*runtimeapi.PortForwardResponse).GetUrl, request, "prepare port-forward to sandbox %q", request.GetPodSandboxId())
}
