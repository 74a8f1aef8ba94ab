package cri

import (
	"context"
	"fmt"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/tinylet/tinylet/agent/container"
)

// criVersion is the version that the kubelet sends; runtimes ignore it.
const criVersion = "0.1.0"

// Version implements container.Node.
func (d *Driver) Version(ctx context.Context) (*runtimeapi.VersionResponse, error) {
	limited, cancel := context.WithTimeout(ctx, d.timeout)
	defer cancel()
	r, err := d.runtime.Version(limited, &runtimeapi.VersionRequest{Version: criVersion})
	if err != nil {
		return nil, wrap(ctx, err, "get version of container runtime")
	}
	return r, nil
}

// Status implements container.Node.
func (d *Driver) Status(ctx context.Context) (*runtimeapi.StatusResponse, error) {
	limited, cancel := context.WithTimeout(ctx, d.timeout)
	defer cancel()
	r, err := d.runtime.Status(limited, &runtimeapi.StatusRequest{})
	if err != nil {
		return nil, wrap(ctx, err, "get status of container runtime")
	}
	if r.GetStatus() == nil {
		return nil, fmt.Errorf("get status of container runtime: %w", errEmptyResponse)
	}
	return r, nil
}

// Info implements container.Node.
func (d *Driver) Info(ctx context.Context) (container.Info, error) {
	limited, cancel := context.WithTimeout(ctx, d.timeout)
	defer cancel()
	r, err := d.runtime.Status(limited, &runtimeapi.StatusRequest{Verbose: true})
	if err != nil {
		return container.Info{}, wrap(ctx, err, "get verbose status of container runtime")
	}
	return container.ParseInfo(r.GetInfo())
}

// RuntimeConfig implements container.Node.
func (d *Driver) RuntimeConfig(ctx context.Context) (*runtimeapi.RuntimeConfigResponse, error) {
	limited, cancel := context.WithTimeout(ctx, d.timeout)
	defer cancel()
	r, err := d.runtime.RuntimeConfig(limited, &runtimeapi.RuntimeConfigRequest{})
	if err != nil {
		return nil, wrap(ctx, err, "get configuration of container runtime")
	}
	return r, nil
}
