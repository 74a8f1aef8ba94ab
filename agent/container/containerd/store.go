// Package containerd is a client of containerd's native gRPC API, which is served on
// the same socket as CRI, for operations that CRI does not have: it imports images
// from blobs, and detects and repairs inconsistencies between CRI and containerd about
// ended containers. It owns the connection, the lease that protects blobs from
// containerd's garbage collector until an image references them, and the few API
// messages that it needs. The namespace is CRI's, k8s.io.
//
// The package does not unpack images: containerd does that when it creates the first
// container of an image.
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

// namespace is the containerd namespace of CRI.
const namespace = "k8s.io"

// lease is the ID of the agent's lease. The lease persists over restarts of the agent,
// so that data written before a power cut is still there.
const lease = "tinylet-preload"

// callTimeout limits each call that transfers no content.
const callTimeout = 2 * time.Minute

// Store is a client of containerd's content and image stores. It is not safe for
// concurrent use. Between Release and Protect it has no connection.
type Store struct {
	path string
	log  *slog.Logger
	conn *grpc.ClientConn
}

// New returns a Store for the socket endpoint, which is unix:///path, unix:/path or
// /path. It does not connect.
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
		return "", fmt.Errorf("invalid containerd endpoint %q: must be unix:///path", endpoint)
	}
	return path, nil
}

// Protect creates the lease, which protects the blobs of subsequent Puts until
// Release, also over restarts of containerd or the agent.
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
	return wrap(ctx, err, "create lease %q", lease)
}

// Release deletes the lease and closes the connection: containerd may then remove
// blobs that no image references. A missing lease is no error.
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
	return errors.Join(wrap(ctx, err, "delete lease %q", lease), s.Close())
}

// Close closes the connection, if there is one. The lease stays.
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

// Tag creates the image name with the target b, or updates its target. b must have
// been stored with Put.
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
	// CRI gets an event of the new image and adds its labels.
	err := s.call(ctx, "images.v1.Images/Create", m)
	if status.Code(err) == codes.AlreadyExists {
		m.mask(2, []string{"target"}) // images.UpdateImageRequest
		err = s.call(ctx, "images.v1.Images/Update", m)
	}
	return wrap(ctx, err, "tag image %q", name)
}

// connect creates the client connection; the first call connects.
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

// dial creates a client connection with small buffers. It does not connect.
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

// withHeaders returns ctx with the namespace and the lease as headers of a call.
func withHeaders(ctx context.Context) context.Context {
	return metadata.AppendToOutgoingContext(ctx, "containerd-namespace", namespace, "containerd-lease", lease)
}

// call makes a call and ignores the response.
func (s *Store) call(ctx context.Context, method string, request message) error {
	return invoke(ctx, s.conn, method, request, nil)
}

// invoke makes a call with the timeout callTimeout; answer may be nil.
func invoke(ctx context.Context, conn *grpc.ClientConn, method string, request message, answer *message) error {
	if answer == nil {
		answer = new(message)
	}
	ctx, cancel := context.WithTimeout(withHeaders(ctx), callTimeout)
	defer cancel()
	return conn.Invoke(ctx, service+method, request, answer)
}

// kinds maps gRPC codes to the errors of package container.
var kinds = map[codes.Code]error{
	codes.NotFound:         container.ErrNotFound,
	codes.Unavailable:      container.ErrUnavailable,
	codes.DeadlineExceeded: container.ErrTimeout,
	codes.Unimplemented:    container.ErrUnsupported,
}

// wrap adds the attempted operation to err, and maps err to the errors of package
// container. ctx is the caller's context, without callTimeout. If it has ended, wrap
// wraps its error instead. A nil err returns nil.
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
