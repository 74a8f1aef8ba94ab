package fake

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/tinylet/tinylet/agent/container"
)

type sandbox struct {
	id      string
	serial  int
	config  *runtimeapi.PodSandboxConfig
	handler string
	state   runtimeapi.PodSandboxState
	created int64
	ip      string
}

func (s *sandbox) hostNetwork() bool {
	return s.config.GetLinux().GetSecurityContext().GetNamespaceOptions().GetNetwork() == runtimeapi.NamespaceMode_NODE
}

func (s *sandbox) status() *runtimeapi.PodSandboxStatus {
	c := proto.CloneOf(s.config)
	return &runtimeapi.PodSandboxStatus{
		Id:          s.id,
		Metadata:    c.GetMetadata(),
		State:       s.state,
		CreatedAt:   s.created,
		Network:     &runtimeapi.PodSandboxNetworkStatus{Ip: s.ip},
		Linux:       &runtimeapi.LinuxPodSandboxStatus{Namespaces: &runtimeapi.Namespace{Options: c.GetLinux().GetSecurityContext().GetNamespaceOptions()}},
		Labels:      c.GetLabels(),
		Annotations: c.GetAnnotations(),

		RuntimeHandler: s.handler,
	}
}

// RunPodSandbox implements container.Sandboxes. As in containerd, the
// combination of name, namespace, UID and attempt must be unused.
func (r *Runtime) RunPodSandbox(ctx context.Context, config *runtimeapi.PodSandboxConfig, handler string) (string, error) {
	m := config.GetMetadata()
	return query(ctx, r, "RunPodSandbox", m.GetNamespace()+"/"+m.GetName(), 2*r.timeout, func() (string, error) {
		if m == nil {
			return "", errors.New("sandbox config must include metadata")
		}
		for _, other := range r.sandboxes {
			if proto.Equal(other.config.GetMetadata(), m) {
				return "", fmt.Errorf("sandbox name %s_%s_%s_%d is reserved for %q", m.GetName(), m.GetNamespace(), m.GetUid(), m.GetAttempt(), other.id)
			}
		}
		id := r.nextID("sandbox")
		s := &sandbox{
			id:      id,
			serial:  r.serial,
			config:  proto.CloneOf(config),
			handler: handler,
			state:   runtimeapi.PodSandboxState_SANDBOX_READY,
			created: time.Now().UnixNano(),
		}
		switch {
		case s.hostNetwork() && config.GetHostname() != "":
			return "", errors.New("unable to set hostname without a private UTS namespace")
		case !s.hostNetwork():
			s.ip = fmt.Sprintf("10.88.%d.%d", r.serial/250, r.serial%250+2)
		}
		r.sandboxes[id] = s
		r.emit(id, id, runtimeapi.ContainerEventType_CONTAINER_CREATED_EVENT)
		r.emit(id, id, runtimeapi.ContainerEventType_CONTAINER_STARTED_EVENT)
		return id, nil
	})
}

// StopPodSandbox implements container.Sandboxes.
func (r *Runtime) StopPodSandbox(ctx context.Context, sandboxID string) error {
	return r.doLocked(ctx, "StopPodSandbox", sandboxID, r.timeout, func() error {
		r.stopSandbox(sandboxID)
		return nil
	})
}

func (r *Runtime) stopSandbox(id string) {
	s := r.sandboxes[id]
	if s == nil {
		return
	}
	for _, p := range r.inSandbox(id) {
		r.end(p, 137, "")
	}
	s.ip = ""
	if s.state == runtimeapi.PodSandboxState_SANDBOX_READY {
		s.state = runtimeapi.PodSandboxState_SANDBOX_NOTREADY
		r.emit(id, id, runtimeapi.ContainerEventType_CONTAINER_STOPPED_EVENT)
	}
}

// RemovePodSandbox implements container.Sandboxes. As in containerd, the event
// of the sandbox's removal comes before the sandbox leaves the lists.
func (r *Runtime) RemovePodSandbox(ctx context.Context, sandboxID string) error {
	return r.doLocked(ctx, "RemovePodSandbox", sandboxID, r.timeout, func() error {
		if r.sandboxes[sandboxID] == nil {
			return nil
		}
		r.stopSandbox(sandboxID)
		for _, p := range r.inSandbox(sandboxID) {
			r.remove(p)
		}
		r.emit(sandboxID, sandboxID, runtimeapi.ContainerEventType_CONTAINER_DELETED_EVENT)
		delete(r.sandboxes, sandboxID)
		return nil
	})
}

// PodSandboxStatus implements container.Sandboxes.
func (r *Runtime) PodSandboxStatus(ctx context.Context, sandboxID string) (*runtimeapi.PodSandboxStatus, error) {
	return query(ctx, r, "PodSandboxStatus", sandboxID, r.timeout, func() (*runtimeapi.PodSandboxStatus, error) {
		s := r.sandboxes[sandboxID]
		if s == nil {
			return nil, container.ErrNotFound
		}
		return s.status(), nil
	})
}

// ListPodSandbox implements container.Sandboxes, the oldest first.
func (r *Runtime) ListPodSandbox(ctx context.Context, filter *runtimeapi.PodSandboxFilter) ([]*runtimeapi.PodSandbox, error) {
	return query(ctx, r, "ListPodSandbox", filter.GetId(), r.timeout, func() ([]*runtimeapi.PodSandbox, error) {
		var list []*runtimeapi.PodSandbox
		for _, s := range r.sortedSandboxes() {
			if filter.GetId() != "" && filter.GetId() != s.id ||
				filter.GetState() != nil && filter.GetState().GetState() != s.state ||
				!selects(filter.GetLabelSelector(), s.config.GetLabels()) {
				continue
			}
			c := proto.CloneOf(s.config)
			list = append(list, &runtimeapi.PodSandbox{
				Id:             s.id,
				Metadata:       c.GetMetadata(),
				State:          s.state,
				CreatedAt:      s.created,
				Labels:         c.GetLabels(),
				Annotations:    c.GetAnnotations(),
				RuntimeHandler: s.handler,
			})
		}
		return list, nil
	})
}

func (r *Runtime) sortedSandboxes() []*sandbox {
	return slices.SortedFunc(maps.Values(r.sandboxes), func(a, b *sandbox) int { return a.serial - b.serial })
}

func selects(selector, labels map[string]string) bool {
	for k, v := range selector {
		if got, ok := labels[k]; !ok || got != v {
			return false
		}
	}
	return true
}

// KillSandbox ends the sandbox's own process (the pause container) and does not
// affect its containers.
func (r *Runtime) KillSandbox(id string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.sandboxes[id]
	if s == nil || s.state != runtimeapi.PodSandboxState_SANDBOX_READY {
		return
	}
	s.state = runtimeapi.PodSandboxState_SANDBOX_NOTREADY
	r.emit(id, id, runtimeapi.ContainerEventType_CONTAINER_STOPPED_EVENT)
}
