package fake

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/tinylet/tinylet/agent/container"
)

// CreateContainer implements container.Containers. As in containerd, the
// sandbox must be ready, the image present, and the name with its attempt
// unused in the pod.
func (r *Runtime) CreateContainer(ctx context.Context, sandboxID string, config *runtimeapi.ContainerConfig, sandboxConfig *runtimeapi.PodSandboxConfig) (string, error) {
	return query(ctx, r, "CreateContainer", config.GetMetadata().GetName(), r.timeout, func() (string, error) {
		p, err := r.create(sandboxID, config, sandboxConfig)
		if err != nil {
			return "", err
		}
		r.emit(p.status.Id, sandboxID, runtimeapi.ContainerEventType_CONTAINER_CREATED_EVENT)
		return p.status.Id, nil
	})
}

func (r *Runtime) create(sandboxID string, config *runtimeapi.ContainerConfig, sandboxConfig *runtimeapi.PodSandboxConfig) (*process, error) {
	s := r.sandboxes[sandboxID]
	if s == nil {
		return nil, fmt.Errorf("sandbox %q: %w", sandboxID, container.ErrNotFound)
	}
	if s.state != runtimeapi.PodSandboxState_SANDBOX_READY {
		return nil, fmt.Errorf("sandbox container %q is not running", sandboxID)
	}
	if config.GetMetadata() == nil || sandboxConfig.GetMetadata() == nil {
		return nil, errors.New("config must include metadata")
	}
	for _, other := range r.containers {
		if other.sandbox.config.GetMetadata().GetUid() == s.config.GetMetadata().GetUid() &&
			proto.Equal(other.config.GetMetadata(), config.GetMetadata()) {
			return nil, fmt.Errorf("container name %s_%d is reserved for %q", config.GetMetadata().GetName(), config.GetMetadata().GetAttempt(), other.status.Id)
		}
	}
	img := r.image(config.GetImage().GetImage())
	if img == nil {
		return nil, fmt.Errorf("image %q: %w", config.GetImage().GetImage(), container.ErrNotFound)
	}
	config = proto.CloneOf(config)
	p := &process{
		sandbox: s,
		config:  config,
		program: r.program(append(config.GetCommand(), config.GetArgs()...), img),
		done:    make(chan struct{}),
		files:   make(map[string]string),

		attached: make(map[chan string]struct{}),
		status: &runtimeapi.ContainerStatus{
			Id:          r.nextID("container"),
			Metadata:    config.GetMetadata(),
			State:       runtimeapi.ContainerState_CONTAINER_CREATED,
			CreatedAt:   time.Now().UnixNano(),
			Image:       &runtimeapi.ImageSpec{Image: img.name},
			ImageRef:    img.digest(),
			ImageId:     img.record.GetId(),
			Labels:      config.GetLabels(),
			Annotations: config.GetAnnotations(),
			Mounts:      config.GetMounts(),
			User:        userOf(config),
			StopSignal:  stopSignalOf(config),
			Resources:   &runtimeapi.ContainerResources{Linux: proto.CloneOf(config.GetLinux().GetResources())},
		},
	}
	if s.config.GetLogDirectory() != "" && config.GetLogPath() != "" {
		p.status.LogPath = filepath.Join(s.config.GetLogDirectory(), config.GetLogPath())
	}
	p.serial = r.serial
	r.containers[p.status.Id] = p
	return p, nil
}

// StartContainer implements container.Containers. As in containerd, a container
// that cannot be started exits with code 128 and reason StartError.
func (r *Runtime) StartContainer(ctx context.Context, containerID string) error {
	return r.doLocked(ctx, "StartContainer", containerID, r.timeout, func() error {
		p := r.containers[containerID]
		switch {
		case p == nil:
			return container.ErrNotFound
		case p.status.State != runtimeapi.ContainerState_CONTAINER_CREATED:
			return fmt.Errorf("container is in %v state", p.status.State)
		}
		now := time.Now().UnixNano()
		err := p.program.StartErr
		if p.sandbox.state != runtimeapi.PodSandboxState_SANDBOX_READY {
			err = fmt.Errorf("sandbox container %q is not running", p.sandbox.id)
		}
		if err == nil {
			err = r.openLog(p)
		}
		if err != nil {
			p.finish(now, 128, "StartError")
			p.status.Message = err.Error()
			return err
		}
		p.status.State = runtimeapi.ContainerState_CONTAINER_RUNNING
		p.status.StartedAt = now
		r.emit(containerID, p.sandbox.id, runtimeapi.ContainerEventType_CONTAINER_STARTED_EVENT)
		if p.program.Ends {
			r.after(p, p.program.After, func() { r.end(p, p.program.Code, "") })
		}
		return nil
	})
}

// StopContainer implements container.Containers.
func (r *Runtime) StopContainer(ctx context.Context, containerID string, grace time.Duration) error {
	grace = max(grace, 0)
	return r.do(ctx, "StopContainer", containerID, r.timeout+grace, func(ctx context.Context) error {
		r.mu.Lock()
		p, broken := r.containers[containerID], r.broken
		if p == nil || p.status.State != runtimeapi.ContainerState_CONTAINER_RUNNING {
			r.mu.Unlock()
			return nil
		}
		if grace > 0 {
			r.signal(p)
		}
		r.mu.Unlock()
		if grace > 0 {
			timer := time.NewTimer(grace)
			defer timer.Stop()
			select {
			case <-p.done:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			case <-broken:
				return container.ErrUnavailable
			case <-timer.C:
			}
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		r.end(p, 137, "")
		return nil
	})
}

// UpdateContainerResources implements container.Containers.
func (r *Runtime) UpdateContainerResources(ctx context.Context, containerID string, resources *runtimeapi.LinuxContainerResources) error {
	return r.doLocked(ctx, "UpdateContainerResources", containerID, r.timeout, func() error {
		p := r.containers[containerID]
		if p == nil {
			return container.ErrNotFound
		}
		has := p.status.Resources
		if has.Linux == nil {
			has.Linux = &runtimeapi.LinuxContainerResources{}
		}
		if resources.GetHugepageLimits() != nil {
			has.Linux.HugepageLimits = nil // else Merge would append them
		}
		proto.Merge(has.Linux, resources)
		return nil
	})
}

// RemoveContainer implements container.Containers.
func (r *Runtime) RemoveContainer(ctx context.Context, containerID string) error {
	return r.doLocked(ctx, "RemoveContainer", containerID, r.timeout, func() error {
		if p := r.containers[containerID]; p != nil {
			r.end(p, 137, "")
			r.remove(p)
		}
		return nil
	})
}

// ContainerStatus implements container.Containers.
func (r *Runtime) ContainerStatus(ctx context.Context, containerID string) (*runtimeapi.ContainerStatus, error) {
	return query(ctx, r, "ContainerStatus", containerID, r.timeout, func() (*runtimeapi.ContainerStatus, error) {
		p := r.containers[containerID]
		if p == nil {
			return nil, container.ErrNotFound
		}
		return proto.CloneOf(p.status), nil
	})
}

// ListContainers implements container.Containers, the oldest first.
func (r *Runtime) ListContainers(ctx context.Context, filter *runtimeapi.ContainerFilter) ([]*runtimeapi.Container, error) {
	return query(ctx, r, "ListContainers", filter.GetId(), r.timeout, func() ([]*runtimeapi.Container, error) {
		var list []*runtimeapi.Container
		for _, p := range r.sorted() {
			if filter.GetId() != "" && filter.GetId() != p.status.Id ||
				filter.GetPodSandboxId() != "" && filter.GetPodSandboxId() != p.sandbox.id ||
				filter.GetState() != nil && filter.GetState().GetState() != p.status.State ||
				!selects(filter.GetLabelSelector(), p.config.GetLabels()) {
				continue
			}
			s := proto.CloneOf(p.status)
			list = append(list, &runtimeapi.Container{
				Id:           s.GetId(),
				PodSandboxId: p.sandbox.id,
				Metadata:     s.GetMetadata(),
				Image:        proto.CloneOf(p.config.GetImage()),
				ImageRef:     s.GetImageId(), // a list has the ID only
				ImageId:      s.GetImageId(),
				State:        s.GetState(),
				CreatedAt:    s.GetCreatedAt(),
				Labels:       s.GetLabels(),
				Annotations:  s.GetAnnotations(),
			})
		}
		return list, nil
	})
}

func userOf(config *runtimeapi.ContainerConfig) *runtimeapi.ContainerUser {
	sc := config.GetLinux().GetSecurityContext()
	return &runtimeapi.ContainerUser{Linux: &runtimeapi.LinuxContainerUser{
		Uid:                sc.GetRunAsUser().GetValue(),
		Gid:                sc.GetRunAsGroup().GetValue(),
		SupplementalGroups: sc.GetSupplementalGroups(),
	}}
}

func stopSignalOf(config *runtimeapi.ContainerConfig) runtimeapi.Signal {
	if s := config.GetStopSignal(); s != runtimeapi.Signal_SIGNAL_RUNTIME_DEFAULT {
		return s
	}
	return runtimeapi.Signal_SIGNAL_SIGTERM
}
