// Package cri implements the driver for any runtime that serves CRI v1 over a
// unix socket, such as containerd and CRI-O. It manages the gRPC connection:
// its memory, its timeouts and the reconnection after a restart of the runtime.
// It maps gRPC's status codes to the errors of package container.
package cri

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/tinylet/tinylet/agent/config"
	"github.com/tinylet/tinylet/agent/container"
	"github.com/tinylet/tinylet/agent/metrics"
)

// defaultTimeout is the kubelet's default for runtimeRequestTimeout.
const defaultTimeout = 2 * time.Minute

// maxMessage is the size of the largest response that is received, in bytes
// (the kubelet's limit). A list of every container of a full node with its
// annotations stays below it.
const maxMessage = 16 << 20

// Config configures a Driver.
type Config struct {
	// RuntimeEndpoint is the socket of the RuntimeService: unix:///path or
	// an absolute path.
	RuntimeEndpoint string
	// ImageEndpoint is the socket of the ImageService; empty means the same
	// as RuntimeEndpoint.
	ImageEndpoint string
	// Timeout limits every call except PullImage, ContainerEvents and an ExecSync without
	// a timeout. The timeout of RunPodSandbox is twice as long. StopContainer and ExecSync
	// add the grace period or the timeout of the command. 0 means two minutes.
	Timeout time.Duration
	// Log is required. It receives a record for each new gRPC connection, and at debug
	// level one for each call except ExecSync and ContainerEvents.
	Log *slog.Logger
}

// Driver implements container.Runtime over gRPC. It is safe for concurrent
// use.
type Driver struct {
	timeout   time.Duration
	log       *slog.Logger
	calls     atomic.Uint64
	durations *metrics.TimingVec
	conns     []*grpc.ClientConn
	watchers  []*socketWatcher
	runtime   runtimeapi.RuntimeServiceClient
	images    runtimeapi.ImageServiceClient
	execs     *execCalls
	closed    atomic.Bool
}

var _ container.Runtime = (*Driver)(nil)

// New returns a driver without connecting. The first call connects. Later calls use the
// connection, or fail with ErrUnavailable while the runtime is unreachable. The caller must
// call Close.
func New(c Config) (*Driver, error) {
	if c.Log == nil {
		return nil, errors.New("cri: Log is required")
	}
	if c.Timeout < 0 {
		return nil, fmt.Errorf("cri: negative Timeout %v", c.Timeout)
	}
	c.Timeout = cmp.Or(c.Timeout, defaultTimeout)
	runtimePath, err := SocketPath(c.RuntimeEndpoint)
	if err != nil {
		return nil, fmt.Errorf("container runtime endpoint: %w", err)
	}
	imagePath, err := SocketPath(cmp.Or(c.ImageEndpoint, c.RuntimeEndpoint))
	if err != nil {
		return nil, fmt.Errorf("image service endpoint: %w", err)
	}

	d := &Driver{timeout: c.Timeout, log: c.Log, durations: metrics.NewTimingVec(callBounds), execs: newExecCalls(runtimePath)}
	conn, err := d.connect(runtimePath)
	if err != nil {
		return nil, err
	}
	d.runtime = runtimeapi.NewRuntimeServiceClient(conn)
	if imagePath != runtimePath {
		if conn, err = d.connect(imagePath); err != nil {
			return nil, errors.Join(err, d.Close())
		}
	}
	d.images = runtimeapi.NewImageServiceClient(conn)
	return d, nil
}

// DialOptions returns the options of every connection to the runtime's socket. The pauses
// between attempts to connect are at most a second, so that calls succeed soon after the
// runtime is back. gRPC's default is up to two minutes.
//
// Memory: responses are a few kB, so small buffers suffice (70 kB less in use
// than with gRPC's defaults), and fixed windows disable the bandwidth estimator
// with its pings. A window of 64 kB on each side is HTTP/2's default.
func DialOptions() []grpc.DialOption {
	return []grpc.DialOption{
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: 100 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: time.Second},
			MinConnectTimeout: 20 * time.Second,
		}),
		grpc.WithReadBufferSize(4 << 10),
		grpc.WithStaticStreamWindowSize(64 << 10),
		grpc.WithStaticConnWindowSize(64 << 10),
		grpc.WithDisableServiceConfig(),
		grpc.WithDisableRetry(),
		grpc.WithDisableHealthCheck(),
		grpc.WithNoProxy(),
	}
}

// connect prepares a connection to the socket at path. Connected, with an idle event stream,
// a driver holds 0.4 MB on the heap, of which 0.3 MB are protobuf's descriptors of CRI, and
// seven goroutines.
//
// Liveness: there are no keepalive pings. The kernel reports a dead peer on a
// unix socket at once. A hung one may still answer pings, and containerd's
// server disconnects a client that sends more than one in five minutes. Package
// pleg detects hangs by calling Status.
func (d *Driver) connect(path string) (conn *grpc.ClientConn, err error) {
	a := &socketWatcher{path: path, retry: func() { conn.ResetConnectBackoff() }}
	conn, err = grpc.NewClient("passthrough:///"+path, append(DialOptions(),
		grpc.WithAuthority("localhost"),
		grpc.WithContextDialer(func(ctx context.Context, path string) (net.Conn, error) {
			c, err := d.dial(ctx, path)
			a.onDial(err)
			return c, err
		}),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxMessage)),
		grpc.WithWriteBufferSize(4<<10),
		grpc.WithIdleTimeout(0), // the event stream keeps it open anyway
		grpc.WithChainUnaryInterceptor(d.interceptUnary),
	)...)
	if err != nil {
		return nil, fmt.Errorf("prepare connection to %q: %w", path, err)
	}
	d.conns, d.watchers = append(d.conns, conn), append(d.watchers, a)
	return conn, nil
}

// call makes one call within timeout. Its error names the operation, what.
func call[Request, Response any](ctx context.Context, timeout time.Duration,
	method func(context.Context, Request, ...grpc.CallOption) (Response, error), in Request, what string, args ...any,
) (Response, error) {
	limited, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	out, err := method(limited, in)
	return out, wrap(ctx, err, what, args...)
}

// errEmptyResponse means that a response lacks the object.
var errEmptyResponse = errors.New("empty response from container runtime")

// callFor is call, and returns a part of the response. It fails with errEmptyResponse if
// the part is missing.
func callFor[Request, Response any, Part comparable](ctx context.Context, timeout time.Duration,
	method func(context.Context, Request, ...grpc.CallOption) (Response, error), partOf func(Response) Part, in Request, what string, args ...any,
) (part Part, err error) {
	out, err := call(ctx, timeout, method, in, what, args...)
	if err != nil {
		return part, err
	}
	if partOf(out) == part {
		return part, fmt.Errorf("%s: %w", fmt.Sprintf(what, args...), errEmptyResponse)
	}
	return partOf(out), nil
}

// interceptUnary counts, measures and logs unary calls.
func (d *Driver) interceptUnary(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	d.calls.Add(1)
	begun := time.Now()
	err := invoke(ctx, method, req, reply, cc, opts...)
	took := time.Since(begun)
	d.recordMetrics(method, reply, took, err)
	d.trace(ctx, method, req, reply, took)
	return err
}

// Calls returns the number of calls so far, including ExecSync. Streams are not counted.
func (d *Driver) Calls() uint64 { return d.calls.Load() }

// dial connects to the socket. Its errors reach the callers of the methods.
func (d *Driver) dial(ctx context.Context, path string) (net.Conn, error) {
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "unix", path)
	if err == nil {
		d.log.Info("connected to container runtime", "socket", path)
	}
	return conn, err
}

// Close closes the connections. Calls in progress fail with ErrUnavailable.
func (d *Driver) Close() error {
	d.closed.Store(true)
	d.execs.stop()
	var errs []error
	for i, conn := range d.conns {
		d.watchers[i].close()
		if err := conn.Close(); err != nil {
			errs = append(errs, fmt.Errorf("close connection to %q: %w", conn.Target(), err))
		}
	}
	return errors.Join(errs...)
}

// SocketPath returns the path of an endpoint of the form unix:///path,
// unix:/path or /path.
func SocketPath(endpoint string) (string, error) {
	path, isURL := strings.CutPrefix(endpoint, "unix:")
	if isURL {
		path = strings.TrimPrefix(path, "//")
	}
	switch {
	case endpoint == "":
		return "", fmt.Errorf("endpoint is empty: use unix:///path/of/the/socket")
	case !strings.HasPrefix(path, "/"):
		return "", fmt.Errorf("endpoint %q is not a unix socket: use unix:///path/of/the/socket", endpoint)
	case strings.ContainsRune(path, 0):
		return "", fmt.Errorf("endpoint %q contains a zero byte", endpoint)
	}
	path = filepath.Clean(path)
	if path == "/" {
		return "", fmt.Errorf("endpoint %q has no socket path", endpoint)
	}
	if len(path) > config.MaxSocketPath {
		return "", fmt.Errorf("endpoint %q exceeds the %d bytes of a socket path", endpoint, config.MaxSocketPath)
	}
	return path, nil
}
