package cri

import (
	"context"
	"fmt"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/tinylet/tinylet/agent/container"
)

// criVersion is the version that the kubelet sends; runtimes ignore it.
const criVersion = "0.1.0"

// Version implements container.RuntimeInfo.
func (d *Driver) Version(ctx context.Context) (*runtimeapi.VersionResponse, error) {
	return call(ctx, d.timeout, d.runtime.Version, &runtimeapi.VersionRequest{Version: criVersion}, "get version of container runtime")
}

// Status implements container.RuntimeInfo.
func (d *Driver) Status(ctx context.Context) (*runtimeapi.StatusResponse, error) {
	r, err := call(ctx, d.timeout, d.runtime.Status, &runtimeapi.StatusRequest{}, "get status of container runtime")
	if err == nil && r.GetStatus() == nil {
		return nil, fmt.Errorf("get status of container runtime: %w", errEmptyResponse)
	}
	return r, err
}

// Info implements container.RuntimeInfo.
func (d *Driver) Info(ctx context.Context) (container.Info, error) {
	r, err := call(ctx, d.timeout, d.runtime.Status, &runtimeapi.StatusRequest{Verbose: true}, "get verbose status of container runtime")
	if err != nil {
		return container.Info{}, err
	}
	return container.ParseInfo(r.GetInfo())
}

// RuntimeConfig implements container.RuntimeInfo.
func (d *Driver) RuntimeConfig(ctx context.Context) (*runtimeapi.RuntimeConfigResponse, error) {
	return call(ctx, d.timeout, d.runtime.RuntimeConfig, &runtimeapi.RuntimeConfigRequest{}, "get configuration of container runtime")
}
