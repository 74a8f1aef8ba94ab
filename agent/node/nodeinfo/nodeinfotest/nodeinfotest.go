// Package nodeinfotest creates a nodeinfo.Info for tests.
package nodeinfotest

import (
	"context"
	"testing"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/tinylet/tinylet/agent/config"
	"github.com/tinylet/tinylet/agent/container"
	"github.com/tinylet/tinylet/agent/container/criconfig"
	"github.com/tinylet/tinylet/agent/node/nodeinfo"
)

// Config returns the default configuration, with all paths below a new directory.
func Config(t testing.TB) *config.Config {
	t.Helper()
	kubelet, tinylet := config.Default()
	dir, none := t.TempDir(), ""
	kubelet.ResolverConfig = &none
	tinylet.SocketPath = dir + "/socket"
	return &config.Config{
		Kubelet: kubelet, Tinylet: tinylet, NodeName: "board",
		Paths: config.Paths{Root: dir, Pods: dir + "/pods", PodLogs: dir + "/logs", ContainerLogs: dir + "/links"},
	}
}

// New returns what is known of the node after the runtime has reported a cgroup driver; "" means
// that it has not answered yet.
func New(t testing.TB, cfg *config.Config, driver string) *nodeinfo.Info {
	t.Helper()
	n, err := nodeinfo.New(cfg, Runtime{Driver: driver}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if driver != "" {
		if _, err := n.Refresh(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	return n
}

// Runtime is a runtime that reports a cgroup driver and a status, and has no images.
type Runtime struct {
	Driver string
	// Result is the response to Status; nil means an empty one.
	Result *runtimeapi.StatusResponse
}

// RuntimeConfig implements container.RuntimeInfo.
func (r Runtime) RuntimeConfig(context.Context) (*runtimeapi.RuntimeConfigResponse, error) {
	driver := runtimeapi.CgroupDriver_CGROUPFS
	if r.Driver == criconfig.DriverSystemd {
		driver = runtimeapi.CgroupDriver_SYSTEMD
	}
	return &runtimeapi.RuntimeConfigResponse{Linux: &runtimeapi.LinuxRuntimeConfiguration{CgroupDriver: driver}}, nil
}

// Status implements container.RuntimeInfo.
func (r Runtime) Status(context.Context) (*runtimeapi.StatusResponse, error) {
	if r.Result == nil {
		return &runtimeapi.StatusResponse{}, nil
	}
	return r.Result, nil
}

// Version implements container.RuntimeInfo.
func (Runtime) Version(context.Context) (*runtimeapi.VersionResponse, error) {
	return &runtimeapi.VersionResponse{}, nil
}

// Info implements container.RuntimeInfo.
func (Runtime) Info(context.Context) (container.Info, error) { return container.Info{}, nil }

// ListImages returns no images.
func (Runtime) ListImages(context.Context, *runtimeapi.ImageFilter) ([]*runtimeapi.Image, error) {
	return nil, nil
}
