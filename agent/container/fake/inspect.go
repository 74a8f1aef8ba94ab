package fake

import (
	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// AllSandboxes returns the actual state of every sandbox, the oldest first. It
// is not a call: it works during outages and is not recorded.
func (r *Runtime) AllSandboxes() []*runtimeapi.PodSandboxStatus {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []*runtimeapi.PodSandboxStatus
	for _, s := range r.sortedSandboxes() {
		out = append(out, s.status())
	}
	return out
}

// AllContainers returns the actual state of every container, the oldest first.
// It is not a call either.
func (r *Runtime) AllContainers() []*runtimeapi.ContainerStatus {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []*runtimeapi.ContainerStatus
	for _, p := range r.sorted() {
		out = append(out, proto.CloneOf(p.status))
	}
	return out
}

// RunningContainer returns the ID of the running container of that name in the
// pod with that UID, or "".
func (r *Runtime) RunningContainer(podUID, name string) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, p := range r.containers {
		if p.sandbox.config.GetMetadata().GetUid() == podUID && p.config.GetMetadata().GetName() == name &&
			p.status.State == runtimeapi.ContainerState_CONTAINER_RUNNING {
			return p.status.Id
		}
	}
	return ""
}
