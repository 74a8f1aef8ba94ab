// Package container defines the interface to the container runtime: the calls of CRI v1 that
// the agent makes, the errors that drivers return, and the labels and annotations by which
// tinylet and a kubelet identify each other's containers. It also defines Observed, the
// runtime's state of one pod at one moment.
//
// Drivers are in sub-packages and pass the suite in container/conformance.
package container

import (
	"context"
	"errors"
	"time"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Errors that every driver maps its own errors to, for errors.Is.
var (
	// ErrNotFound means that the runtime does not have the object.
	ErrNotFound = errors.New("not found in the container runtime")
	// ErrUnavailable means that the runtime is unreachable or that the
	// connection broke. The call may or may not have taken effect.
	ErrUnavailable = errors.New("container runtime is not reachable")
	// ErrTimeout means that the runtime did not respond in time. The call may or may not
	// have taken effect.
	ErrTimeout = errors.New("container runtime did not answer in time")
	// ErrUnsupported means that the runtime does not implement the call.
	ErrUnsupported = errors.New("not supported by the container runtime")
)

// Sandboxes is the part of CRI's RuntimeService for pod sandboxes. Every method
// blocks until the runtime responds, ctx ends or the driver's own timeout expires. All
// methods are safe for concurrent use. Stop and remove are idempotent: they return nil for
// an object that the runtime does not have.
type Sandboxes interface {
	// RunPodSandbox creates and starts a sandbox with its network. After an
	// error the runtime may have a leaked sandbox, which ListPodSandbox
	// returns.
	RunPodSandbox(ctx context.Context, config *runtimeapi.PodSandboxConfig, handler string) (sandboxID string, err error)
	// StopPodSandbox kills the sandbox's containers and tears its network down.
	StopPodSandbox(ctx context.Context, sandboxID string) error
	// RemovePodSandbox removes the sandbox and all its containers.
	RemovePodSandbox(ctx context.Context, sandboxID string) error
	// PodSandboxStatus returns a sandbox's status, or ErrNotFound.
	PodSandboxStatus(ctx context.Context, sandboxID string) (*runtimeapi.PodSandboxStatus, error)
	// ListPodSandbox lists the sandboxes that match filter; nil matches all.
	ListPodSandbox(ctx context.Context, filter *runtimeapi.PodSandboxFilter) ([]*runtimeapi.PodSandbox, error)
}

// MaxExecOutput is the most bytes that ExecSync returns of each output.
const MaxExecOutput = 64 << 10

// Containers is the part of CRI's RuntimeService for containers. Its methods
// block and fail like those of Sandboxes.
type Containers interface {
	// CreateContainer creates a container in a sandbox without starting it.
	// sandboxConfig must equal the config that the sandbox was created with.
	CreateContainer(ctx context.Context, sandboxID string, config *runtimeapi.ContainerConfig, sandboxConfig *runtimeapi.PodSandboxConfig) (containerID string, err error)
	// StartContainer starts a created container.
	StartContainer(ctx context.Context, containerID string) error
	// StopContainer sends the stop signal, waits for up to grace, then kills. It returns
	// when the runtime reports the exit, or some seconds after the runtime's response. The
	// driver adds grace to its own timeout.
	StopContainer(ctx context.Context, containerID string, grace time.Duration) error
	// UpdateContainerResources changes a container's limits; zero fields stay
	// unchanged. A created container that is not started yet starts with them.
	// It returns ErrNotFound for an unknown container. After an error the
	// container's status may not show the limits in effect; its cgroup does.
	UpdateContainerResources(ctx context.Context, containerID string, resources *runtimeapi.LinuxContainerResources) error
	// RemoveContainer removes a container, running or not.
	RemoveContainer(ctx context.Context, containerID string) error
	// ContainerStatus returns a container's status, or ErrNotFound.
	ContainerStatus(ctx context.Context, containerID string) (*runtimeapi.ContainerStatus, error)
	// ListContainers lists the containers that match filter; nil matches all.
	ListContainers(ctx context.Context, filter *runtimeapi.ContainerFilter) ([]*runtimeapi.Container, error)
	// ExecSync runs a command in a running container and waits until it exits.
	// An exit code other than 0 is no error. A command that runs longer than
	// timeout is killed, with ErrTimeout. CRI has whole seconds, so a fraction
	// is rounded up. With a timeout of 0 only ctx limits the command. Output
	// beyond the first MaxExecOutput bytes of each stream is dropped.
	ExecSync(ctx context.Context, containerID string, cmd []string, timeout time.Duration) (stdout, stderr []byte, exitCode int32, err error)
	// ReopenContainerLog makes the runtime continue the log in a new file at
	// the container's log path, after the old file was renamed. The container
	// must be running.
	ReopenContainerLog(ctx context.Context, containerID string) error
}

// Streams is the part of CRI for exec, attach and port-forward. The runtime
// serves the bytes itself, at the URL that it returns: HTTP/1.1 with an upgrade
// to SPDY/3.1 or WebSocket. A URL is valid for one use, and for a short time (a
// minute in containerd and CRI-O). The runtime does not authenticate clients,
// so it must listen on the loopback address, as http://127.0.0.1:PORT/PATH, or
// on a unix socket, as unix:/SOCKET:/PATH. The methods prepare a stream and
// start nothing. They block and fail like those of Sandboxes.
type Streams interface {
	// Exec prepares a command in a running container. It fails for a container
	// that is not running, with ErrNotFound for an unknown one. With a terminal
	// there is no stderr. The request must have at least one stream.
	Exec(ctx context.Context, request *runtimeapi.ExecRequest) (url string, err error)
	// Attach prepares a connection to the first process of a running container,
	// with the rules of Exec.
	Attach(ctx context.Context, request *runtimeapi.AttachRequest) (url string, err error)
	// PortForward prepares connections to ports in a ready sandbox. It fails
	// for a sandbox that is not ready, with ErrNotFound for an unknown one. The
	// request names the ports for WebSocket only; with SPDY each stream names
	// its own.
	PortForward(ctx context.Context, request *runtimeapi.PortForwardRequest) (url string, err error)
}

// Images is CRI's ImageService. Its methods block and fail like those of
// Sandboxes.
type Images interface {
	// ImageStatus returns the status of an image, or nil and no error if the image is not
	// present.
	ImageStatus(ctx context.Context, image *runtimeapi.ImageSpec) (*runtimeapi.Image, error)
	// PullImage blocks until the image is pulled and unpacked, and returns its
	// reference. Only ctx limits its time.
	PullImage(ctx context.Context, image *runtimeapi.ImageSpec, auth *runtimeapi.AuthConfig, sandbox *runtimeapi.PodSandboxConfig) (imageRef string, err error)
	// ListImages lists the images that match; containerd ignores the filter.
	ListImages(ctx context.Context, filter *runtimeapi.ImageFilter) ([]*runtimeapi.Image, error)
	// RemoveImage removes an image with all its names, even if it is in use: a
	// container keeps its files. An absent image is no error.
	RemoveImage(ctx context.Context, image *runtimeapi.ImageSpec) error
	// ImageFsInfo returns the filesystems that hold images, the default
	// snapshotter's first.
	ImageFsInfo(ctx context.Context) (*runtimeapi.ImageFsInfoResponse, error)
}

// Events is CRI's GetContainerEvents.
type Events interface {
	// ContainerEvents subscribes to the runtime's events and calls handle for
	// each, in order. It blocks until ctx ends (its error), the stream breaks
	// (ErrUnavailable) or the runtime has no events (ErrUnsupported). For an
	// unreachable runtime it waits, or returns ErrUnavailable. It calls
	// connected once, as soon as the stream is known to work. Earlier events
	// are not replayed, so the caller must relist then. handle must not block
	// for long.
	ContainerEvents(ctx context.Context, connected func(), handle func(*runtimeapi.ContainerEventResponse)) error
}

// RuntimeInfo is the runtime's information about itself.
type RuntimeInfo interface {
	// Version returns the runtime's name, version and API version.
	Version(ctx context.Context) (*runtimeapi.VersionResponse, error)
	// Status returns the conditions RuntimeReady and NetworkReady, and the
	// features of the runtime and of its handlers if it reports them.
	Status(ctx context.Context) (*runtimeapi.StatusResponse, error)
	// Info returns the runtime's own configuration; every field may be empty.
	Info(ctx context.Context) (Info, error)
	// RuntimeConfig returns the cgroup driver in use, or ErrUnsupported.
	RuntimeConfig(ctx context.Context) (*runtimeapi.RuntimeConfigResponse, error)
}

// Runtime is the complete interface to the container runtime. Consumers depend
// on the parts that they use.
type Runtime interface {
	Sandboxes
	Containers
	Streams
	Images
	Events
	RuntimeInfo
}

// ErrCorrupt means that content does not match its digest or size. The store of image blobs
// and pulls return it.
var ErrCorrupt = errors.New("content does not match its digest")

// Blob is content in the runtime's content store: its descriptor, of which the media
// type, the digest (SHA-256) and the size count, and its references.
type Blob struct {
	ocispec.Descriptor
	// Refs are the digests of the blobs that this blob references, keyed by
	// their role: config; l.0, l.1 and so on for layers; m.0, m.1 and so on for
	// manifests.
	Refs map[string]digest.Digest
}
