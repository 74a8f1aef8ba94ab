package cri

import (
	"context"
	"math"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/tinylet/tinylet/agent/pod"
	"github.com/tinylet/tinylet/agent/wait"
)

// CreateContainer implements container.Containers.
func (d *Driver) CreateContainer(ctx context.Context, sandboxID string, config *runtimeapi.ContainerConfig, sandboxConfig *runtimeapi.PodSandboxConfig) (string, error) {
	return callFor(ctx, d.timeout, d.runtime.CreateContainer, (*runtimeapi.CreateContainerResponse).GetContainerId, &runtimeapi.CreateContainerRequest{
		PodSandboxId:  sandboxID,
		Config:        config,
		SandboxConfig: sandboxConfig,
	}, "create container %q in sandbox %q", config.GetMetadata().GetName(), sandboxID)
}

// StartContainer implements container.Containers.
func (d *Driver) StartContainer(ctx context.Context, containerID string) error {
	_, err := call(ctx, d.timeout, d.runtime.StartContainer, &runtimeapi.StartContainerRequest{ContainerId: containerID}, "start container %q", containerID)
	return err
}

// StopContainer implements container.Containers. CRI has whole seconds: a
// fraction is rounded up, so that no process gets less than grace. A grace of 0
// kills at once.
func (d *Driver) StopContainer(ctx context.Context, containerID string, grace time.Duration) error {
	grace = max(grace, 0)
	limited, cancel := context.WithTimeout(ctx, pod.AddSaturating(grace, d.timeout))
	defer cancel()
	_, err := d.runtime.StopContainer(limited, &runtimeapi.StopContainerRequest{
		ContainerId: containerID,
		Timeout:     wholeSeconds(grace),
	})
	if err != nil {
		return ignoreNotFound(wrap(ctx, err, "stop container %q", containerID))
	}
	return d.awaitExit(limited, containerID)
}

// How long StopContainer waits until the runtime reports the exit.
const (
	endFirstWait = 20 * time.Millisecond
	exitTimeout  = 5 * time.Second
)

// awaitExit waits until the runtime no longer reports the stopped container as running.
// containerd 2.4 responds to StopContainer up to half a second before that, and until then
// rejects the removal of the container. After exitTimeout awaitExit returns nil. A caller
// that finds the container running observes it again.
func (d *Driver) awaitExit(ctx context.Context, containerID string) error {
	limited, cancel := context.WithTimeout(ctx, exitTimeout)
	defer cancel()
	for pause := endFirstWait; ; pause *= 2 {
		status, err := d.ContainerStatus(limited, containerID)
		switch {
		case limited.Err() != nil && ctx.Err() == nil:
			return nil
		case err != nil:
			return ignoreNotFound(err)
		case status.GetState() != runtimeapi.ContainerState_CONTAINER_RUNNING:
			return nil
		}
		wait.Pause(limited, pause)
	}
}

// wholeSeconds returns d in seconds, rounded up; d must not be negative.
func wholeSeconds(d time.Duration) int64 {
	return int64(math.Ceil(d.Seconds()))
}

// UpdateContainerResources implements container.Containers.
func (d *Driver) UpdateContainerResources(ctx context.Context, containerID string, resources *runtimeapi.LinuxContainerResources) error {
	_, err := call(ctx, d.timeout, d.runtime.UpdateContainerResources, &runtimeapi.UpdateContainerResourcesRequest{
		ContainerId: containerID, Linux: resources,
	}, "update resources of container %q", containerID)
	return err
}

// RemoveContainer implements container.Containers.
func (d *Driver) RemoveContainer(ctx context.Context, containerID string) error {
	_, err := call(ctx, d.timeout, d.runtime.RemoveContainer, &runtimeapi.RemoveContainerRequest{ContainerId: containerID}, "remove container %q", containerID)
	return ignoreNotFound(err)
}

// ContainerStatus implements container.Containers.
func (d *Driver) ContainerStatus(ctx context.Context, containerID string) (*runtimeapi.ContainerStatus, error) {
	return callFor(ctx, d.timeout, d.runtime.ContainerStatus, (*runtimeapi.ContainerStatusResponse).GetStatus,
		&runtimeapi.ContainerStatusRequest{ContainerId: containerID}, "get status of container %q", containerID)
}

// ListContainers implements container.Containers.
func (d *Driver) ListContainers(ctx context.Context, filter *runtimeapi.ContainerFilter) ([]*runtimeapi.Container, error) {
	r, err := call(ctx, d.timeout, d.runtime.ListContainers, &runtimeapi.ListContainersRequest{Filter: filter}, "list containers")
	return r.GetContainers(), err
}
