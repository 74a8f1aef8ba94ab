package handler

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// stubExec answers every command with the same.
type stubExec struct {
	stdout, stderr []byte
	code           int32
	err            error
	hang           bool

	id      string
	cmd     []string
	timeout time.Duration
}

func (s *stubExec) ExecSync(ctx context.Context, id string, cmd []string, timeout time.Duration) (stdout, stderr []byte, exitCode int32, err error) {
	s.id, s.cmd, s.timeout = id, cmd, timeout
	if s.hang {
		<-ctx.Done()
		return nil, nil, 0, ctx.Err()
	}
	return s.stdout, s.stderr, s.code, s.err
}

// silent dials a peer that takes everything and never answers.
func silent(t *testing.T) func(context.Context, string, string) (net.Conn, error) {
	return func(context.Context, string, string) (net.Conn, error) {
		ours, theirs := net.Pipe()
		t.Cleanup(func() { _ = theirs.Close() })
		go func() {
			buf := make([]byte, 4096)
			for {
				if _, err := theirs.Read(buf); err != nil {
					return
				}
			}
		}()
		return ours, nil
	}
}

// unreachable dials like an address whose packets are dropped.
func unreachable(ctx context.Context, _, _ string) (net.Conn, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

// dialing returns a Runner that opens its connections with dial.
func dialing(exec Exec, dial func(ctx context.Context, network, address string) (net.Conn, error)) *Runner {
	r := New(exec)
	r.dial, r.transport.DialContext = dial, dial
	return r
}

// serve starts a server on loopback and says where.
func serve(t *testing.T, h http.Handler, start func(http.Handler) *httptest.Server) (host string, port int) {
	t.Helper()
	server := start(h)
	server.Config.ErrorLog = nil
	t.Cleanup(server.Close)
	u, err := url.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	if port, err = strconv.Atoi(u.Port()); err != nil {
		t.Fatal(err)
	}
	return u.Hostname(), port
}

// closedPort is a port of 127.0.0.1 on which nobody listens.
func closedPort(t *testing.T) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	return l.Addr().(*net.TCPAddr).Port
}

func get(port int, path string, headers ...v1.HTTPHeader) *v1.ProbeHandler {
	return &v1.ProbeHandler{HTTPGet: &v1.HTTPGetAction{Port: intstr.FromInt(port), Path: path, HTTPHeaders: headers}}
}

// local is a target on loopback.
func local() Target {
	return Target{ContainerID: "c1", IP: "127.0.0.1", Container: &v1.Container{Name: "web"}}
}
