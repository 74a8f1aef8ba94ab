package fake

import (
	"context"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/tinylet/tinylet/agent/container"
)

// Version implements container.Node.
func (r *Runtime) Version(ctx context.Context) (*runtimeapi.VersionResponse, error) {
	return query(ctx, r, "Version", "", r.timeout, func() (*runtimeapi.VersionResponse, error) {
		return &runtimeapi.VersionResponse{Version: "0.1.0", RuntimeName: "fake", RuntimeVersion: "1.0.0", RuntimeApiVersion: "v1"}, nil
	})
}

// Status implements container.Node.
func (r *Runtime) Status(ctx context.Context) (*runtimeapi.StatusResponse, error) {
	return query(ctx, r, "Status", "", r.timeout, func() (*runtimeapi.StatusResponse, error) {
		return &runtimeapi.StatusResponse{
			Status: &runtimeapi.RuntimeStatus{Conditions: []*runtimeapi.RuntimeCondition{
				{Type: runtimeapi.RuntimeReady, Status: true},
				{Type: runtimeapi.NetworkReady, Status: true},
			}},
			RuntimeHandlers: []*runtimeapi.RuntimeHandler{{Features: &runtimeapi.RuntimeHandlerFeatures{
				RecursiveReadOnlyMounts: true, UserNamespaces: true,
			}}},
			Features: &runtimeapi.RuntimeFeatures{SupplementalGroupsPolicy: true},
		}, nil
	})
}

// Info implements container.Node.
func (r *Runtime) Info(ctx context.Context) (container.Info, error) {
	return query(ctx, r, "Info", "", r.timeout, func() (container.Info, error) { return container.Info{}, nil })
}

// RuntimeConfig implements container.Node.
func (r *Runtime) RuntimeConfig(ctx context.Context) (*runtimeapi.RuntimeConfigResponse, error) {
	return query(ctx, r, "RuntimeConfig", "", r.timeout, func() (*runtimeapi.RuntimeConfigResponse, error) {
		return &runtimeapi.RuntimeConfigResponse{Linux: &runtimeapi.LinuxRuntimeConfiguration{CgroupDriver: runtimeapi.CgroupDriver_CGROUPFS}}, nil
	})
}
