package conformance

import (
	"net"
	"os"
	"path/filepath"
	"testing"

	"github.com/tinylet/tinylet/agent/container"
	"github.com/tinylet/tinylet/agent/container/criserver"
)

// Server serves a container.Runtime as CRI v1 over a unix socket, so that the
// cri driver can be tested with the fake.
type Server struct {
	// Endpoint is the socket as unix:///path.
	Endpoint string

	path   string
	rt     container.Runtime
	server *criserver.Server
	done   chan error
}

// Serve starts a server that stops with the test.
func Serve(t *testing.T, rt container.Runtime) *Server {
	t.Helper()
	// Not t.TempDir: its path may be too long for a socket.
	dir, err := os.MkdirTemp("", "cri")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	s := &Server{path: filepath.Join(dir, "s"), rt: rt}
	s.Endpoint = "unix://" + s.path
	s.Start(t)
	t.Cleanup(func() { s.Stop(t) })
	return s
}

// Start listens again after Stop.
func (s *Server) Start(t *testing.T) {
	t.Helper()
	l, err := net.Listen("unix", s.path)
	if err != nil {
		t.Fatal(err)
	}
	s.server = criserver.New(s.rt, nil)
	s.done = make(chan error, 1)
	go func() { s.done <- s.server.Serve(l) }()
}

// Stop breaks all connections and removes the socket.
func (s *Server) Stop(t *testing.T) {
	t.Helper()
	if s.server == nil {
		return
	}
	s.server.Stop()
	if err := <-s.done; err != nil {
		t.Errorf("serve: %v", err)
	}
	s.server = nil
}
