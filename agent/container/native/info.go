package native

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/tinylet/tinylet/agent/container"
	"github.com/tinylet/tinylet/agent/container/native/spec"
)

// Version implements container.RuntimeInfo.
func (d *Driver) Version(ctx context.Context) (*runtimeapi.VersionResponse, error) {
	version, err := d.Store.Version(ctx)
	if err != nil {
		return nil, err
	}
	return &runtimeapi.VersionResponse{Version: "0.1.0", RuntimeName: "containerd", RuntimeVersion: version, RuntimeApiVersion: "v1"}, nil
}

// Status implements container.RuntimeInfo.
func (d *Driver) Status(ctx context.Context) (*runtimeapi.StatusResponse, error) {
	condition := func(kind, reason string, err error) *runtimeapi.RuntimeCondition {
		c := &runtimeapi.RuntimeCondition{Type: kind, Status: err == nil}
		if err != nil {
			c.Reason, c.Message = reason, err.Error()
		}
		return c
	}
	_, err := d.Store.Version(ctx)
	if _, keeperErr := d.Keeper.Hello(ctx); keeperErr != nil {
		err = errors.Join(err, keeperErr)
	}
	out := &runtimeapi.StatusResponse{Features: &runtimeapi.RuntimeFeatures{SupplementalGroupsPolicy: true}, Status: &runtimeapi.RuntimeStatus{Conditions: []*runtimeapi.RuntimeCondition{
		condition(runtimeapi.RuntimeReady, "RuntimeNotReady", err), condition(runtimeapi.NetworkReady, "NetworkNotReady", d.Network.Problem(ctx)),
	}}}
	users := d.Store.CheckIDMaps(ctx) == nil
	for name, h := range d.Handlers {
		out.RuntimeHandlers = append(out.RuntimeHandlers, &runtimeapi.RuntimeHandler{
			Name: name, Features: &runtimeapi.RuntimeHandlerFeatures{RecursiveReadOnlyMounts: h.Features.RecursiveReadOnly, UserNamespaces: users && h.Features.IDMapMounts},
		})
	}
	return out, nil
}

// Info implements container.RuntimeInfo.
func (d *Driver) Info(context.Context) (container.Info, error) { return container.Info{}, nil }

// RuntimeConfig implements container.RuntimeInfo.
func (d *Driver) RuntimeConfig(context.Context) (*runtimeapi.RuntimeConfigResponse, error) {
	driver := runtimeapi.CgroupDriver_CGROUPFS
	if d.Systemd {
		driver = runtimeapi.CgroupDriver_SYSTEMD
	}
	return &runtimeapi.RuntimeConfigResponse{Linux: &runtimeapi.LinuxRuntimeConfiguration{CgroupDriver: driver}}, nil
}

// ImageFsInfo implements container.Images.
func (d *Driver) ImageFsInfo(ctx context.Context) (*runtimeapi.ImageFsInfoResponse, error) {
	dir, used, err := d.Store.Usage(ctx)
	if err != nil {
		return nil, err
	}
	return &runtimeapi.ImageFsInfoResponse{ImageFilesystems: []*runtimeapi.FilesystemUsage{{
		Timestamp: time.Now().UnixNano(), FsId: &runtimeapi.FilesystemIdentifier{Mountpoint: dir},
		UsedBytes: &runtimeapi.UInt64Value{Value: uint64(max(used, 0))},
	}}}, nil
}

// UpdateContainerResources implements container.Containers.
func (d *Driver) UpdateContainerResources(ctx context.Context, id string, r *runtimeapi.LinuxContainerResources) error {
	c, err := d.container(id)
	if err != nil {
		return err
	}
	if err := c.turn.take(ctx); err != nil {
		return fmt.Errorf("update container %q: %w", id, err)
	}
	defer c.turn.release()
	merged := proto.CloneOf(c.snapshot().GetResources().GetLinux())
	if merged == nil {
		merged = new(runtimeapi.LinuxContainerResources)
	}
	mergeResources(merged, r)
	switch state := c.snapshot().GetState(); state {
	case runtimeapi.ContainerState_CONTAINER_CREATED:
		err = d.updateSpec(c, merged)
	case runtimeapi.ContainerState_CONTAINER_RUNNING:
		err = d.updateRunning(ctx, c, r)
	default:
		err = fmt.Errorf("it is in state %s", state)
	}
	if err != nil {
		return fmt.Errorf("update container %q: %w", id, err)
	}
	c.change(func(s *runtimeapi.ContainerStatus) { s.Resources = &runtimeapi.ContainerResources{Linux: merged} })
	return nil
}

// mergeResources sets the fields that are not zero. A list replaces the former one.
func mergeResources(into, from *runtimeapi.LinuxContainerResources) {
	if len(from.GetHugepageLimits()) > 0 {
		into.HugepageLimits = nil
	}
	proto.Merge(into, from)
}

// updateSpec changes the resources of a container that has not started.
func (d *Driver) updateSpec(c *podContainer, r *runtimeapi.LinuxContainerResources) error {
	s, err := d.readSpec(c.id)
	if err != nil {
		return err
	}
	resources := spec.Resources(r, d.Node)
	resources.Devices = s.Linux.Resources.Devices
	s.Linux.Resources = resources
	return d.writeSpec(c.id, s)
}

// updateRunning changes the resources of a running container with the OCI runtime program.
func (d *Driver) updateRunning(ctx context.Context, c *podContainer, r *runtimeapi.LinuxContainerResources) error {
	data, err := json.Marshal(spec.Resources(r, d.Node))
	if err != nil {
		return fmt.Errorf("encode resources: %w", err)
	}
	path := filepath.Join(d.containerDir(c.id), "resources.json")
	if err := os.WriteFile(path, data, 0o600); err != nil {
		return err
	}
	args := d.handlerOf(c).Program.Update(c.id, path)
	if out, err := exec.CommandContext(ctx, args[0], args[1:]...).CombinedOutput(); err != nil {
		const most = 1 << 10
		return fmt.Errorf("%q: %w: %s", args[0], err, out[:min(len(out), most)])
	}
	return os.Remove(path)
}
