package handler

import (
	"context"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	v1 "k8s.io/api/core/v1"
)

// serveHealth starts a gRPC server and says on which port.
func serveHealth(t *testing.T, register func(*grpc.Server)) int32 {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	register(server)
	done := make(chan error, 1)
	go func() { done <- server.Serve(l) }()
	t.Cleanup(func() {
		server.Stop()
		if err := <-done; err != nil {
			t.Errorf("serve: %v", err)
		}
	})
	return int32(l.Addr().(*net.TCPAddr).Port)
}

// slowHealth answers when the caller has given up.
type slowHealth struct {
	healthpb.UnimplementedHealthServer
}

func (slowHealth) Check(ctx context.Context, _ *healthpb.HealthCheckRequest) (*healthpb.HealthCheckResponse, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

// TestProbeGRPC checks the answers of real health servers.
func TestProbeGRPC(t *testing.T) {
	normal := serveHealth(t, func(s *grpc.Server) {
		h := health.NewServer()
		h.SetServingStatus("good", healthpb.HealthCheckResponse_SERVING)
		h.SetServingStatus("bad", healthpb.HealthCheckResponse_NOT_SERVING)
		healthpb.RegisterHealthServer(s, h)
	})
	none := serveHealth(t, func(*grpc.Server) {})
	slow := serveHealth(t, func(s *grpc.Server) { healthpb.RegisterHealthServer(s, slowHealth{}) })
	good, bad, unknown := "good", "bad", "unknown"
	cases := []struct {
		name    string
		port    int32
		service *string
		timeout time.Duration
		status  Status
		output  string
	}{
		{"whole server", normal, nil, time.Minute, Success, "service healthy"},
		{"service", normal, &good, time.Minute, Success, "service healthy"},
		{"not serving", normal, &bad, time.Minute, Failure, `service unhealthy (responded with "NOT_SERVING")`},
		{"unknown service", normal, &unknown, time.Minute, Failure, "error: health rpc probe failed: rpc error: code = NotFound desc = unknown service"},
		{"no health service", none, nil, time.Minute, Failure, "error: this server does not implement the grpc health protocol (grpc.health.v1.Health): unknown service grpc.health.v1.Health"},
		{"slow", slow, nil, 200 * time.Millisecond, Failure, "timeout: health rpc did not complete within 200ms"},
		{"nobody listens", int32(closedPort(t)), nil, 50 * time.Millisecond, Failure, "timeout: failed to connect service "},
	}
	r := New(nil)
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			h := &v1.ProbeHandler{GRPC: &v1.GRPCAction{Port: tc.port, Service: tc.service}}
			got, err := r.Probe(t.Context(), h, local(), tc.timeout)
			if err != nil || got.Status != tc.status || !strings.HasPrefix(got.Output, tc.output) {
				t.Errorf("got %v %q and %v, want %v %q", got.Status, got.Output, err, tc.status, tc.output)
			}
		})
	}
}

// TestProbeGRPCHung checks the time limit against a peer that never speaks.
func TestProbeGRPCHung(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begun := time.Now()
		h := &v1.ProbeHandler{GRPC: &v1.GRPCAction{Port: 80}}
		got, err := dialing(nil, silent(t)).Probe(t.Context(), h, local(), 2*time.Second)
		if err != nil || got.Status != Failure || time.Since(begun) != 2*time.Second {
			t.Errorf("after %v: %v and %v", time.Since(begun), got, err)
		}
	})
}
