package container

import (
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// State is a container's state as CRI tells it.
type State uint8

// The states of CRI's ContainerState, with the zero value for what the
// runtime does not know (it lost the container's task).
const (
	StateUnknown State = iota
	StateCreated
	StateRunning
	StateExited
)

func (s State) String() string {
	switch s {
	case StateCreated:
		return "created"
	case StateRunning:
		return "running"
	case StateExited:
		return "exited"
	case StateUnknown:
	}
	return "unknown"
}

// Sandbox is one observed pod sandbox.
type Sandbox struct {
	ID        string
	Attempt   uint32
	Ready     bool
	CreatedAt time.Time
	// IPs are the pod's addresses, the primary first; empty on the host's
	// network and for a sandbox that is not ready.
	IPs []string
	// HostNetwork says that the sandbox has no network namespace of its own.
	// It is not known of one that is not ready.
	HostNetwork bool
	// BootID is the kernel's boot ID when it was made; empty where that is not
	// known (a kubelet's sandbox).
	BootID string
}

// Container is one observed container, running or a tombstone: an exited
// one kept as evidence.
type Container struct {
	ID        string
	Name      string
	SandboxID string
	State     State

	CreatedAt  time.Time
	StartedAt  time.Time // zero before the start
	FinishedAt time.Time // zero before the end

	ExitCode int32
	Reason   string // the runtime's word, such as Completed, Error, OOMKilled
	Message  string

	Image    string // as the pod asked for it
	ImageRef string // the reference that CRI resolved it to
	ImageID  string

	// Hash is the annotation io.kubernetes.container.hash: lower-case hex.
	Hash string
	// RestartCount is the annotation io.kubernetes.container.restartCount.
	RestartCount int
	// Backoff is how long to wait after this container's end before the next
	// start; zero where the annotation is absent (a kubelet's container).
	Backoff time.Duration
	// GracePeriod is the pod's termination grace period at creation, or
	// negative where the annotation is absent.
	GracePeriod time.Duration

	// PreStop is the annotation io.kubernetes.container.preStopHandler: what
	// the container was made to run before its end, also when its pod is not
	// known any more. nil if there is none or it makes no sense.
	PreStop *v1.LifecycleHandler
	// User is who the first process runs as; nil where the runtime does not
	// say (containerd before 2.0).
	User *v1.ContainerUser
	// Resources are the limits as the runtime tells them; nil where it does not.
	Resources *Resources
	// StopSignal is what a stop sends, such as SIGTERM or SIGRTMIN+3; empty
	// where the runtime does not say (containerd before 2.2).
	StopSignal v1.Signal

	LogPath                string // absolute
	TerminationMessagePath string // on the host; "" if none is mounted
}

// Resources are limits of a container in CRI's measures: cgroup v1's shares,
// microseconds, bytes. Zero was never set.
type Resources struct {
	CPUShares, CPUQuota, CPUPeriod, MemoryLimit int64
}

// Observed is what the runtime knows of one pod UID. It is immutable once
// made and may be shared.
type Observed struct {
	UID       types.UID
	Namespace string
	Name      string

	// Sandboxes are ordered newest first.
	Sandboxes []Sandbox
	// Containers are ordered newest first, all names mixed.
	Containers []Container
}

// Sandbox is the newest sandbox, or nil.
func (o *Observed) Sandbox() *Sandbox {
	if o == nil || len(o.Sandboxes) == 0 {
		return nil
	}
	return &o.Sandboxes[0]
}

// Latest is the newest container of that name, or nil.
func (o *Observed) Latest(name string) *Container {
	if o == nil {
		return nil
	}
	for i := range o.Containers {
		if o.Containers[i].Name == name {
			return &o.Containers[i]
		}
	}
	return nil
}

// Previous is the newest container of that name but one, or nil.
func (o *Observed) Previous(name string) *Container {
	latest := o.Latest(name)
	if latest == nil {
		return nil
	}
	for i := range o.Containers {
		if c := &o.Containers[i]; c.Name == name && c != latest {
			return c
		}
	}
	return nil
}

// Running says whether any container runs or any sandbox is ready.
func (o *Observed) Running() bool {
	if o == nil {
		return false
	}
	for i := range o.Sandboxes {
		if o.Sandboxes[i].Ready {
			return true
		}
	}
	for i := range o.Containers {
		if s := o.Containers[i].State; s == StateRunning || s == StateUnknown {
			return true
		}
	}
	return false
}
