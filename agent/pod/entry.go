package pod

import (
	"iter"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
)

// Entry is a pod and its newest status. Both are shared and must not be
// changed.
type Entry struct {
	Pod    *v1.Pod
	Status *v1.PodStatus
	// Observed means that the runtime's state of the pod was observed. Before
	// that the status is that of a new pod, or the API server's.
	Observed bool
	// Sandbox is the pod's ready sandbox; the zero Sandbox means none.
	Sandbox Sandbox
	// Started are the containers that were started after the status was
	// observed. The slice must not be changed in place.
	Started []RunningContainer
}

// RunningContainer is a running container.
type RunningContainer struct {
	Name string
	// ID is the runtime's container ID.
	ID string
	// Restarts is the number of the attempt; the first is 0.
	Restarts int
}

// Running returns the running containers of the pod: those of the status, and
// those that were started since. The status may be minutes older than a start, while
// a hook runs or the next container's image is pulled.
func (e *Entry) Running() iter.Seq[RunningContainer] {
	return func(yield func(RunningContainer) bool) {
		for _, r := range e.Started {
			if !yield(r) {
				return
			}
		}
		if e.Status == nil {
			return
		}
		for c := range ContainerStatuses(e.Status) {
			id := ContainerID(c)
			if id == "" || c.State.Running == nil || e.startedSince(c.Name) {
				continue
			}
			if !yield(RunningContainer{Name: c.Name, ID: id, Restarts: int(c.RestartCount)}) {
				return
			}
		}
	}
}

// RunningOf returns the running container of that name; ok is false if there is
// none.
func (e *Entry) RunningOf(name string) (found RunningContainer, ok bool) {
	for r := range e.Running() {
		if r.Name == name {
			return r, true
		}
	}
	return RunningContainer{}, false
}

func (e *Entry) startedSince(name string) bool {
	return slices.ContainsFunc(e.Started, func(r RunningContainer) bool { return r.Name == name })
}

// Sandbox describes a pod's ready sandbox.
type Sandbox struct {
	// ID is the runtime's sandbox ID.
	ID string
	// Since is when it was created.
	Since time.Time
	// HostNetwork means that it uses the host's network namespace.
	HostNetwork bool
}

// IsTerminal reports whether a phase is final.
func IsTerminal(phase v1.PodPhase) bool { return phase == v1.PodSucceeded || phase == v1.PodFailed }

// ContainerID returns the runtime's ID of a container without the runtime's name, or "".
func ContainerID(c *v1.ContainerStatus) string {
	_, id, _ := strings.Cut(c.ContainerID, "://")
	return id
}
