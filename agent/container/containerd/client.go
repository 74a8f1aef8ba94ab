// Package containerd uses containerd's native gRPC API, which is served on the same
// socket as CRI, for operations that CRI does not have: Store imports images from blobs,
// and Tasks detects and repairs inconsistencies between CRI and containerd about exited
// containers. Both use the services of containerd's own client. The namespace is CRI's,
// k8s.io.
//
// The agent does not call Store.Unpack: containerd unpacks an image when it creates the first
// container of it.
package containerd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/containerd/containerd/v2/client"
	"github.com/containerd/errdefs"
	"github.com/containerd/platforms"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/tinylet/tinylet/agent/container"
	"github.com/tinylet/tinylet/agent/container/cri"
)

// namespace is the containerd namespace of CRI.
const namespace = "k8s.io"

// callTimeout limits each operation that transfers no content.
const callTimeout = 2 * time.Minute

// maxResponse limits one response in bytes. The default of containerd's client is 16 MiB.
const maxResponse = 4 << 20

// API is a client of containerd's native API.
type API struct {
	*Store
	*Tasks
}

// New returns a client for the socket endpoint, which is unix:///path, unix:/path or
// /path. It does not connect. API.Close closes the connection of Store.
func New(endpoint string) (*API, error) {
	path, err := cri.SocketPath(endpoint)
	if err != nil {
		return nil, err
	}
	return &API{&Store{path: path}, &Tasks{path: path, proc: "/proc", readTimeout: 2 * time.Second}}, nil
}

// dial returns a client with small buffers. It does not connect: the first call does.
//
// The dial options replace the client's own, whose dialer waits 10 s for a socket that
// does not exist. The platform is not used; the client's default would read the CPU's
// variant from procfs.
func dial(path string) (*client.Client, error) {
	c, err := client.New(path,
		client.WithDefaultNamespace(namespace),
		client.WithDefaultPlatform(platforms.All),
		client.WithDialOpts(append(cri.DialOptions(),
			grpc.WithWriteBufferSize(32<<10),
			grpc.WithChainStreamInterceptor(withStreamStatus),
		)),
		client.WithCallOpts([]grpc.CallOption{grpc.MaxCallRecvMsgSize(maxResponse)}),
	)
	if err != nil {
		return nil, fmt.Errorf("prepare connection to %q: %w", path, err)
	}
	return c, nil
}

// withStreamStatus makes the streams of a connection return their status from SendMsg.
// gRPC returns io.EOF from SendMsg on a stream that has ended, and the status from
// RecvMsg, which containerd's client does not call then.
func withStreamStatus(ctx context.Context, desc *grpc.StreamDesc, conn *grpc.ClientConn, method string, streamer grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	stream, err := streamer(ctx, desc, conn, method, opts...)
	if err != nil {
		return nil, err
	}
	return statusStream{stream}, nil
}

type statusStream struct{ grpc.ClientStream }

func (s statusStream) SendMsg(m any) error {
	err := s.ClientStream.SendMsg(m)
	if errors.Is(err, io.EOF) {
		if status := s.RecvMsg(new(emptypb.Empty)); status != nil {
			return status
		}
	}
	return err
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
	var kind error
	switch {
	case errdefs.IsNotFound(err):
		kind = container.ErrNotFound
	case errdefs.IsUnavailable(err):
		kind = container.ErrUnavailable
	case errdefs.IsDeadlineExceeded(err):
		kind = container.ErrTimeout
	case errdefs.IsNotImplemented(err):
		kind = container.ErrUnsupported
	default:
		return fmt.Errorf("%s: %w", what, err)
	}
	return fmt.Errorf("%s: %w: %v", what, kind, err) //nolint:errorlint // a deadline of the call is not one of ctx
}
