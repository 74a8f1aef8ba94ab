// Package container is the seam to the container runtime. It owns the
// interfaces of CRI v1 that the agent calls, the errors that a driver
// answers with, the labels and annotations by which the containers of a
// kubelet are recognised (and ours by a kubelet), and Observed: what the
// runtime knows of one pod at one moment.
//
// Drivers live in sub-packages and pass the suite in
// container/conformance.
package container

import (
	"context"
	"errors"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Errors that every driver maps its own to, for errors.Is.
var (
	// ErrNotFound says that the runtime does not know the object.
	ErrNotFound = errors.New("not found in the container runtime")
	// ErrUnavailable says that the runtime could not be reached or broke
	// the connection; the call may or may not have had its effect.
	ErrUnavailable = errors.New("container runtime is not reachable")
	// ErrTimeout says that the runtime did not answer in time; the call may
	// or may not have had its effect.
	ErrTimeout = errors.New("container runtime did not answer in time")
	// ErrUnsupported says that the runtime does not implement the call.
	ErrUnsupported = errors.New("not supported by the container runtime")
)

// Sandboxes is CRI's RuntimeService for pod sandboxes. Every method blocks
// until the runtime answers, ctx ends or the driver's own limit passes, and
// is safe for concurrent use. Stopping and removing are idempotent: a
// sandbox that is gone already is no error.
type Sandboxes interface {
	// RunPodSandbox creates and starts a sandbox with its network; on an
	// error the runtime may have left a sandbox behind that a list shows.
	RunPodSandbox(ctx context.Context, config *runtimeapi.PodSandboxConfig, handler string) (sandboxID string, err error)
	// StopPodSandbox stops the containers by force and tears the network down.
	StopPodSandbox(ctx context.Context, sandboxID string) error
	// RemovePodSandbox removes the sandbox and all its containers.
	RemovePodSandbox(ctx context.Context, sandboxID string) error
	// PodSandboxStatus fails with ErrNotFound for an unknown sandbox.
	PodSandboxStatus(ctx context.Context, sandboxID string) (*runtimeapi.PodSandboxStatus, error)
	// ListPodSandbox lists those that match; a nil filter matches all.
	ListPodSandbox(ctx context.Context, filter *runtimeapi.PodSandboxFilter) ([]*runtimeapi.PodSandbox, error)
}

// MaxExecOutput is how many bytes of each output of a command ExecSync returns.
const MaxExecOutput = 64 << 10

// Containers is CRI's RuntimeService for containers, with the same promises
// as Sandboxes.
type Containers interface {
	// CreateContainer creates, and does not start, a container in a sandbox.
	// Both configs must be those that the sandbox was made with.
	CreateContainer(ctx context.Context, sandboxID string, config *runtimeapi.ContainerConfig, sandboxConfig *runtimeapi.PodSandboxConfig) (containerID string, err error)
	// StartContainer starts a created container.
	StartContainer(ctx context.Context, containerID string) error
	// StopContainer sends the stop signal, waits for grace, then kills. It
	// returns when the container has ended. The driver adds grace to its own
	// time limit.
	StopContainer(ctx context.Context, containerID string, grace time.Duration) error
	// UpdateContainerResources changes a container's limits; what is zero stays
	// as it is. One that is created and not started starts with them. It fails
	// with ErrNotFound for an unknown container. What holds after an error, the
	// container's status may not tell: its cgroup does.
	UpdateContainerResources(ctx context.Context, containerID string, resources *runtimeapi.LinuxContainerResources) error
	// RemoveContainer removes a container, running or not.
	RemoveContainer(ctx context.Context, containerID string) error
	// ContainerStatus fails with ErrNotFound for an unknown container.
	ContainerStatus(ctx context.Context, containerID string) (*runtimeapi.ContainerStatus, error)
	// ListContainers lists those that match; a nil filter matches all.
	ListContainers(ctx context.Context, filter *runtimeapi.ContainerFilter) ([]*runtimeapi.Container, error)
	// ExecSync runs a command in a running container and waits for its end.
	// An exit code other than 0 is no error. A command that takes longer than
	// timeout is killed, with ErrTimeout; CRI counts whole seconds, so a part
	// of one is rounded up. A timeout of 0 leaves the time to ctx. What is
	// beyond the first MaxExecOutput bytes of an output is dropped.
	ExecSync(ctx context.Context, containerID string, cmd []string, timeout time.Duration) (stdout, stderr []byte, exitCode int32, err error)
	// ReopenContainerLog makes the runtime write on to a new file at the
	// container's log path: the old one was renamed. The container must run.
	ReopenContainerLog(ctx context.Context, containerID string) error
}

// Streams is CRI's part of exec, attach and port-forward. The runtime serves
// the bytes itself, at the URL that it answers: HTTP/1.1 with an upgrade to
// SPDY/3.1 or WebSocket, for one use, and only for a while (a minute in
// containerd and CRI-O). It asks for no credentials, so it must listen on
// the loopback address, as http://127.0.0.1:PORT/PATH, or on a unix socket,
// as unix:/SOCKET:/PATH. The methods prepare and start nothing; they have the
// promises of Sandboxes.
type Streams interface {
	// Exec prepares a command in a running container: an error for one that
	// does not run, ErrNotFound for an unknown one. With a terminal there is
	// no stderr, and at least one stream must be asked for.
	Exec(ctx context.Context, request *runtimeapi.ExecRequest) (url string, err error)
	// Attach prepares a connection to a running container's first process,
	// with the rules of Exec.
	Attach(ctx context.Context, request *runtimeapi.AttachRequest) (url string, err error)
	// PortForward prepares connections to ports in a ready sandbox: an error
	// for one that is not, ErrNotFound for an unknown one. The ports are named
	// for WebSocket only; with SPDY each stream names its own.
	PortForward(ctx context.Context, request *runtimeapi.PortForwardRequest) (url string, err error)
}

// Images is CRI's ImageService, with the same promises as Sandboxes.
type Images interface {
	// ImageStatus answers nil and no error when the image is not present.
	ImageStatus(ctx context.Context, image *runtimeapi.ImageSpec) (*runtimeapi.Image, error)
	// PullImage blocks until the image is unpacked and answers its reference.
	// Only ctx limits its time.
	PullImage(ctx context.Context, image *runtimeapi.ImageSpec, auth *runtimeapi.AuthConfig, sandbox *runtimeapi.PodSandboxConfig) (imageRef string, err error)
	// ListImages lists those that match; containerd ignores the filter.
	ListImages(ctx context.Context, filter *runtimeapi.ImageFilter) ([]*runtimeapi.Image, error)
	// RemoveImage removes an image with all its names, used or not: a
	// container keeps its files. An image that is not there is no error.
	RemoveImage(ctx context.Context, image *runtimeapi.ImageSpec) error
	// ImageFsInfo answers the filesystems that hold images, the default
	// snapshotter's first.
	ImageFsInfo(ctx context.Context) (*runtimeapi.ImageFsInfoResponse, error)
}

// Events is CRI's GetContainerEvents.
type Events interface {
	// ContainerEvents blocks and hands over events in order until ctx ends
	// (its error) or the stream breaks (ErrUnavailable) or the runtime has no
	// events (ErrUnsupported). A runtime that cannot be reached is waited for,
	// or ErrUnavailable. connected is called once, as soon as the
	// stream is known to work; what happened before it is not replayed, so
	// the caller relists then. handle must not block for long.
	ContainerEvents(ctx context.Context, connected func(), handle func(*runtimeapi.ContainerEventResponse)) error
}

// Node is what the runtime says of itself.
type Node interface {
	// Version answers the runtime's name, version and API version.
	Version(ctx context.Context) (*runtimeapi.VersionResponse, error)
	// Status answers the conditions RuntimeReady and NetworkReady, and what the
	// runtime and its handlers can do where they tell.
	Status(ctx context.Context) (*runtimeapi.StatusResponse, error)
	// Info returns what the runtime says of its own configuration; every field
	// may be empty.
	Info(ctx context.Context) (Info, error)
	// RuntimeConfig answers the cgroup driver in use, or ErrUnsupported.
	RuntimeConfig(ctx context.Context) (*runtimeapi.RuntimeConfigResponse, error)
}

// Runtime is the whole seam. Consumers take the part that they use.
type Runtime interface {
	Sandboxes
	Containers
	Streams
	Images
	Events
	Node
}
