package container

import (
	"cmp"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// State is a container's state as CRI reports it.
type State uint8

// The states of CRI's ContainerState. The zero value is the state of a container of which
// the runtime has lost the task.
const (
	StateUnknown State = iota
	StateCreated
	StateRunning
	StateExited
)

func (s State) String() string {
	return cmp.Or(stateNames[s], "unknown")
}

var stateNames = map[State]string{StateCreated: "created", StateRunning: "running", StateExited: "exited"}

// Sandbox is one observed pod sandbox.
type Sandbox struct {
	ID        string
	Attempt   uint32
	Ready     bool
	CreatedAt time.Time
	// IPs are the pod's addresses, the primary first. They are empty on the
	// host network and for a sandbox that is not ready.
	IPs []string
	// HostNetwork reports whether the sandbox shares the host's network
	// namespace. It is false for a sandbox that is not ready.
	HostNetwork bool
	// BootID is the kernel's boot ID when the sandbox was created; "" if
	// unknown (a kubelet's sandbox).
	BootID string
}

// ReasonOOMKilled is the reason of an OOM-killed container. The runtimes use it, and the
// kubelet passes it on.
const ReasonOOMKilled = "OOMKilled"

// Container is one observed container, in any state.
type Container struct {
	ID        string
	Name      string
	SandboxID string
	State     State

	CreatedAt  time.Time
	StartedAt  time.Time // zero until it has started
	FinishedAt time.Time // zero until it has exited

	ExitCode int32
	Reason   string // set by the runtime, such as Completed, Error, OOMKilled
	Message  string

	Image    string // as the pod's spec names it
	ImageRef string // the reference that CRI resolved it to
	ImageID  string

	// Hash is the annotation io.kubernetes.container.hash: lower-case hex.
	Hash string
	// RestartCount is the annotation io.kubernetes.container.restartCount.
	RestartCount int
	// Backoff is the time from this container's exit to the next start; zero if
	// the annotation is absent (a kubelet's container).
	Backoff time.Duration
	// GracePeriod is the pod's termination grace period when the container was
	// created. It is negative if the annotation is absent.
	GracePeriod time.Duration

	// PreStop is the preStop hook in the annotation
	// io.kubernetes.container.preStopHandler. It runs before the container is stopped,
	// also when the pod's spec is no longer known. It is nil if the annotation is absent
	// or invalid.
	PreStop *v1.LifecycleHandler
	// User is the user of the first process; nil where the runtime does not
	// report it (containerd before 2.0).
	User *v1.ContainerUser
	// Resources are the limits that the runtime reports; nil if it reports
	// none.
	Resources *Resources
	// StopSignal is the signal that a stop sends, such as SIGTERM or
	// SIGRTMIN+3; "" where the runtime does not report it (containerd before
	// 2.2).
	StopSignal v1.Signal

	LogPath                string // absolute
	TerminationMessagePath string // on the host; "" if none is mounted
}

// Resources are a container's limits in CRI's units: cgroup v1's CPU shares,
// microseconds, bytes. Zero means not set.
type Resources struct {
	CPUShares, CPUQuota, CPUPeriod, MemoryLimit int64
}

// Observed is the runtime's state of one pod, by UID. It is immutable and may
// be shared.
type Observed struct {
	UID       types.UID
	Namespace string
	Name      string

	// Sandboxes are ordered newest first.
	Sandboxes []Sandbox
	// Containers of all names are ordered newest first.
	Containers []Container
}

// Sandbox returns the newest sandbox, or nil. o may be nil.
func (o *Observed) Sandbox() *Sandbox {
	if o == nil || len(o.Sandboxes) == 0 {
		return nil
	}
	return &o.Sandboxes[0]
}

// UsableSandbox returns the sandbox for a pod's containers: the newest one, if it is ready
// and has the network that the pod requests, and else nil. o may be nil.
func (o *Observed) UsableSandbox(hostNetwork bool) *Sandbox {
	s := o.Sandbox()
	if s == nil || !s.Ready || s.HostNetwork != hostNetwork {
		return nil
	}
	return s
}

// Latest returns the newest container of that name, or nil. o may be nil.
func (o *Observed) Latest(name string) *Container { return o.find(name, 0) }

// Previous returns the second newest container of that name, or nil. o may be
// nil.
func (o *Observed) Previous(name string) *Container { return o.find(name, 1) }

func (o *Observed) find(name string, skip int) *Container {
	if o == nil {
		return nil
	}
	for i := range o.Containers {
		if o.Containers[i].Name != name {
			continue
		}
		if skip == 0 {
			return &o.Containers[i]
		}
		skip--
	}
	return nil
}

// Running reports whether a sandbox is ready or a container runs. A container
// in StateUnknown counts as running. o may be nil.
func (o *Observed) Running() bool {
	if o == nil {
		return false
	}
	return slices.ContainsFunc(o.Sandboxes, func(s Sandbox) bool { return s.Ready }) ||
		slices.ContainsFunc(o.Containers, func(c Container) bool { return c.State == StateRunning || c.State == StateUnknown })
}
