package fake

import (
	"slices"
	"time"

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

// Call is one recorded call of a method of container.Runtime.
type Call struct {
	Method string // such as StartContainer
	// Subject is the object's ID. It is namespace/name of the pod for
	// RunPodSandbox, the container's name for CreateContainer, the image for
	// images, and empty where there is none.
	Subject string
	At      time.Time
	Err     error // nil for ContainerEvents and until the call has returned
}

func (r *Runtime) recordCall(method, subject string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.calls = append(r.calls, Call{Method: method, Subject: subject, At: time.Now()})
	return len(r.calls) - 1
}

// Calls returns the calls so far, in the order of their start: those of the
// given methods, or all if none are given.
func (r *Runtime) Calls(methods ...string) []Call {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []Call
	for _, c := range r.calls {
		if len(methods) == 0 || slices.Contains(methods, c.Method) {
			out = append(out, c)
		}
	}
	return out
}

// Count returns the number of calls so far, of the given methods or of all.
func (r *Runtime) Count(methods ...string) int { return len(r.Calls(methods...)) }
