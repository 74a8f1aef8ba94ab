// Package containerd does what CRI cannot, through containerd's own gRPC API
// on the socket that serves CRI too: it puts images into containerd's store
// from blobs, and tells and mends where CRI and containerd disagree about a
// container's end. It owns the connection for that, the lease that keeps blobs
// from containerd's garbage collector until an image names them, and the few
// messages of the API that this needs. The namespace is CRI's, k8s.io.
//
// Unpacking is left to containerd: it does that when the first container of
// the image is created.
package containerd

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/tinylet/tinylet/agent/container"
)

// namespace is where CRI's images are.
const namespace = "k8s.io"

// lease is the one lease of this agent. It outlives the agent, so that what
// was written before a power cut is found again.
const lease = "tinylet-preload"

// callTimeout limits each call that moves no content.
const callTimeout = 2 * time.Minute

// Store is containerd's store of content and images. It is for one caller at
// a time. Between Release and Protect it holds no connection.
type Store struct {
	path string
	log  *slog.Logger
	conn *grpc.ClientConn
}

// New takes the socket, as unix:///path, unix:/path or /path, and connects to
// nothing.
func New(endpoint string, log *slog.Logger) (*Store, error) {
	path, err := socketPath(endpoint)
	if err != nil {
		return nil, err
	}
	return &Store{path: path, log: log}, nil
}

func socketPath(endpoint string) (string, error) {
	path := strings.TrimPrefix(endpoint, "unix:")
	if strings.HasPrefix(path, "//") {
		path = path[1:]
	}
	if !strings.HasPrefix(path, "/") {
		return "", fmt.Errorf("endpoint %q of containerd is not unix:///path", endpoint)
	}
	return path, nil
}

// Protect keeps what is put from now on until Release, also when containerd
// or the agent restarts in between.
func (s *Store) Protect(ctx context.Context) error {
	if err := s.connect(); err != nil {
		return err
	}
	var m message // leases.CreateRequest
	m.text(1, lease)
	err := s.call(ctx, "leases.v1.Leases/Create", m)
	if status.Code(err) == codes.AlreadyExists {
		return nil
	}
	return wrap(ctx, err, "take a lease on content")
}

// Release ends the protection: what no image names may be removed. It is no
// error if there was none.
func (s *Store) Release(ctx context.Context) error {
	if err := s.connect(); err != nil {
		return err
	}
	var m message // leases.DeleteRequest
	m.text(1, lease)
	err := s.call(ctx, "leases.v1.Leases/Delete", m)
	if status.Code(err) == codes.NotFound {
		err = nil
	}
	return errors.Join(wrap(ctx, err, "give back the lease on content"), s.Close())
}

// Close ends the connection, if there is one. What is protected stays so.
func (s *Store) Close() error {
	if s.conn == nil {
		return nil
	}
	conn := s.conn
	s.conn = nil
	if err := conn.Close(); err != nil {
		return fmt.Errorf("close connection to %q: %w", s.path, err)
	}
	return nil
}

// Tag makes name the name of an image, or moves it there. The blob must have
// been put.
func (s *Store) Tag(ctx context.Context, name string, b container.Blob) error {
	if err := s.connect(); err != nil {
		return err
	}
	var target, image, m message // types.Descriptor, images.Image, images.CreateImageRequest
	target.text(1, b.MediaType)
	target.text(2, b.Digest)
	target.number(3, b.Size)
	image.text(1, name)
	image.data(3, target)
	m.data(1, image)
	// CRI hears of the new image and gives it the labels it wants.
	err := s.call(ctx, "images.v1.Images/Create", m)
	if status.Code(err) == codes.AlreadyExists {
		m.mask(2, []string{"target"}) // images.UpdateImageRequest
		err = s.call(ctx, "images.v1.Images/Update", m)
	}
	return wrap(ctx, err, "name image %q", name)
}

// connect prepares the connection; the first call makes it.
func (s *Store) connect() error {
	if s.conn != nil {
		return nil
	}
	conn, err := dial(s.path)
	if err != nil {
		return err
	}
	s.conn = conn
	return nil
}

// dial prepares a connection, with small buffers.
func dial(path string) (*grpc.ClientConn, error) {
	conn, err := grpc.NewClient("passthrough:///"+path,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithAuthority("localhost"),
		grpc.WithContextDialer(func(ctx context.Context, path string) (net.Conn, error) {
			var dialer net.Dialer
			return dialer.DialContext(ctx, "unix", path)
		}),
		grpc.WithDefaultCallOptions(grpc.ForceCodec(codec{})),
		grpc.WithReadBufferSize(4<<10),
		grpc.WithWriteBufferSize(32<<10),
		grpc.WithStaticStreamWindowSize(64<<10),
		grpc.WithStaticConnWindowSize(64<<10),
		grpc.WithDisableServiceConfig(),
		grpc.WithDisableRetry(),
		grpc.WithDisableHealthCheck(),
		grpc.WithNoProxy(),
	)
	if err != nil {
		return nil, fmt.Errorf("prepare connection to %q: %w", path, err)
	}
	return conn, nil
}

const service = "/containerd.services."

// in is ctx with what containerd reads from a call's headers.
func in(ctx context.Context) context.Context {
	return metadata.AppendToOutgoingContext(ctx, "containerd-namespace", namespace, "containerd-lease", lease)
}

// call makes a call whose answer says nothing of interest.
func (s *Store) call(ctx context.Context, method string, request message) error {
	return invoke(ctx, s.conn, method, request, nil)
}

// invoke makes a call with a limit of its own; answer may be nil.
func invoke(ctx context.Context, conn *grpc.ClientConn, method string, request message, answer *message) error {
	if answer == nil {
		answer = new(message)
	}
	ctx, cancel := context.WithTimeout(in(ctx), callTimeout)
	defer cancel()
	return conn.Invoke(ctx, service+method, request, answer)
}

// kinds are the codes that callers tell apart.
var kinds = map[codes.Code]error{
	codes.NotFound:         container.ErrNotFound,
	codes.Unavailable:      container.ErrUnavailable,
	codes.DeadlineExceeded: container.ErrTimeout,
	codes.Unimplemented:    container.ErrUnsupported,
}

// wrap says what was attempted, and maps err to the errors of package
// container. ctx is the caller's own.
func wrap(ctx context.Context, err error, format string, args ...any) error {
	if err == nil {
		return nil
	}
	what := fmt.Sprintf(format, args...)
	if cause := ctx.Err(); cause != nil {
		return fmt.Errorf("%s: %w", what, cause)
	}
	st := status.Convert(err)
	if kind := kinds[st.Code()]; kind != nil {
		return fmt.Errorf("%s: %w: %s", what, kind, st.Message())
	}
	return fmt.Errorf("%s: %s", what, st.Message())
}
