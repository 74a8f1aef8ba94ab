package handler

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// serveCheaply answers each connection's request with few allocations, so
// that what is measured is the probe.
func serveCheaply(b *testing.B) int {
	b.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		buf := bufio.NewReader(nil)
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			buf.Reset(conn)
			for {
				line, err := buf.ReadSlice('\n')
				if err != nil || len(line) == 2 {
					break
				}
			}
			_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok")
			_ = conn.Close()
		}
	}()
	b.Cleanup(func() {
		_ = l.Close()
		<-done
	})
	return l.Addr().(*net.TCPAddr).Port
}

// cpu reports the process's CPU time per probe, the server's share with it.
func cpu(b *testing.B, probe func()) {
	b.Helper()
	used := func() time.Duration {
		var r syscall.Rusage
		if err := syscall.Getrusage(syscall.RUSAGE_SELF, &r); err != nil {
			b.Fatal(err)
		}
		return time.Duration(r.Utime.Nano() + r.Stime.Nano())
	}
	b.ReportAllocs()
	before := used()
	n := 0
	for b.Loop() {
		probe()
		n++
	}
	b.ReportMetric(float64(used()-before)/float64(n), "cpu-ns/op")
}

func benchProbe(b *testing.B, h *v1.ProbeHandler, exec Exec) {
	b.Helper()
	r := New(exec)
	target := local()
	cpu(b, func() {
		got, err := r.Probe(b.Context(), h, target, time.Minute)
		if err != nil || got.Status != Success {
			b.Fatal(got, err)
		}
	})
}

func BenchmarkHTTP(b *testing.B) {
	benchProbe(b, get(serveCheaply(b), "/healthz", v1.HTTPHeader{Name: "X-Probe", Value: "1"}), nil)
}

func BenchmarkTCP(b *testing.B) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			_ = conn.Close()
		}
	}()
	benchProbe(b, &v1.ProbeHandler{TCPSocket: &v1.TCPSocketAction{Port: intstr.FromInt(l.Addr().(*net.TCPAddr).Port)}}, nil)
	_ = l.Close()
	<-done
}

func BenchmarkExec(b *testing.B) {
	benchProbe(b, &v1.ProbeHandler{Exec: &v1.ExecAction{Command: []string{"cat", "/tmp/healthy"}}}, &stubExec{stdout: []byte("ok\n")})
}

func BenchmarkGRPC(b *testing.B) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	server := grpc.NewServer()
	healthpb.RegisterHealthServer(server, health.NewServer())
	done := make(chan error, 1)
	go func() { done <- server.Serve(l) }()
	benchProbe(b, &v1.ProbeHandler{GRPC: &v1.GRPCAction{Port: int32(l.Addr().(*net.TCPAddr).Port)}}, nil)
	server.Stop()
	<-done
}

// BenchmarkHTTPFloor is what any client has to do: dial, write, read, close.
func BenchmarkHTTPFloor(b *testing.B) {
	port := serveCheaply(b)
	r := New(nil)
	target := local()
	address, err := target.address("", intstr.FromInt(port))
	if err != nil {
		b.Fatal(err)
	}
	cpu(b, func() {
		conn, err := r.dial(b.Context(), "tcp", address)
		if err != nil {
			b.Fatal(err)
		}
		_, _ = io.Copy(conn, strings.NewReader("GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"))
		resp, err := http.ReadResponse(bufio.NewReaderSize(conn, 1024), nil)
		if err != nil {
			b.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		_ = resp.Body.Close()
		_ = conn.Close()
	})
}
