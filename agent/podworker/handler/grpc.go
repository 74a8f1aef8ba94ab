package handler

import (
	"context"
	"fmt"
	"net"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
)

// probeGRPC succeeds if the service answers with the status SERVING.
func (r *Runner) probeGRPC(ctx context.Context, a *v1.GRPCAction, t *Target, timeout time.Duration) (Result, error) {
	address, err := t.address("", intstr.FromInt32(a.Port))
	if err != nil {
		return Result{}, err
	}
	limited, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	conn, err := r.clientConn(address)
	if err != nil {
		return Result{Status: Failure, Output: fmt.Sprintf("error: failed to connect service at %q: %v", address, err)}, nil
	}
	defer func() { _ = conn.Close() }()
	if err := connect(limited, conn); err != nil {
		return Result{Status: Failure, Output: fmt.Sprintf("timeout: failed to connect service %q within %v: %v", address, timeout, err)}, nil
	}
	response, err := healthpb.NewHealthClient(conn).Check(limited, &healthpb.HealthCheckRequest{Service: ptr.Deref(a.Service, "")})
	return healthResult(response.GetStatus(), err, timeout), nil
}

// clientConn returns a client connection for one call, with small buffers.
func (r *Runner) clientConn(address string) (*grpc.ClientConn, error) {
	return grpc.NewClient("passthrough:///"+address,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithUserAgent(userAgent("probe")),
		grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) {
			return r.dial(ctx, "tcp", address)
		}),
		grpc.WithDisableServiceConfig(),
		grpc.WithReadBufferSize(1<<10),
		grpc.WithWriteBufferSize(1<<10),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxOutput)),
		grpc.WithMaxHeaderListSize(maxResponseHeader),
	)
}

// connect blocks until the connection is ready or ctx ends. It retries until
// then.
func connect(ctx context.Context, conn *grpc.ClientConn) error {
	for {
		state := conn.GetState()
		if state == connectivity.Ready {
			return nil
		}
		if state == connectivity.Idle {
			conn.Connect()
		}
		if !conn.WaitForStateChange(ctx, state) {
			return ctx.Err()
		}
	}
}

// healthResult converts the response to a Result with upstream's texts
// (pkg/probe/grpc).
func healthResult(health healthpb.HealthCheckResponse_ServingStatus, err error, timeout time.Duration) Result {
	switch status.Code(err) {
	case codes.OK:
		if health == healthpb.HealthCheckResponse_SERVING {
			return Result{Status: Success, Output: "service healthy"}
		}
		return Result{Status: Failure, Output: fmt.Sprintf("service unhealthy (responded with %q)", health.String())}
	case codes.Unimplemented:
		return Result{Status: Failure, Output: "error: this server does not implement the grpc health protocol (grpc.health.v1.Health): " +
			status.Convert(err).Message()}
	case codes.DeadlineExceeded:
		return Result{Status: Failure, Output: fmt.Sprintf("timeout: health rpc did not complete within %v", timeout)}
	default:
		return Result{Status: Failure, Output: fmt.Sprintf("error: health rpc probe failed: %v", err)}
	}
}
