// Package sessions serves exec, attach and port-forward of a runtime without a streaming
// server of its own, with the server that containerd uses (k8s.io/cri-streaming): SPDY and
// WebSocket. It listens on a Unix socket, and its URLs are valid once, for a minute.
package sessions

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/cri-streaming/pkg/streaming"
	"k8s.io/cri-streaming/pkg/streaming/remotecommand"
	utilexec "k8s.io/utils/exec"

	"github.com/tinylet/tinylet/agent/container/native/oci"
)

// Runtime runs what the clients of sessions ask for. Its methods return when the session has
// ended. ctx ends when the client is gone.
type Runtime interface {
	// Exec runs a command in a container, and returns its exit code.
	Exec(ctx context.Context, containerID string, cmd []string, s Streams) (exitCode int32, err error)
	// Attach connects a client to the first process of a container.
	Attach(ctx context.Context, containerID string, s Streams) error
	// PortForward connects a client to a TCP port in a sandbox.
	PortForward(ctx context.Context, sandboxID string, port int32, client io.ReadWriteCloser) error
}

// Streams are those of a client. A stream that the client did not ask for is nil.
type Streams struct {
	Stdin          io.Reader
	Stdout, Stderr io.Writer
	// Terminal reports whether the client asked for a terminal. Stderr is nil then.
	Terminal bool
	// Resize has the sizes of the client's terminal. It is closed when the session ends.
	Resize <-chan oci.Size
}

const (
	// idleTimeout ends sessions that carry nothing, as in containerd.
	idleTimeout = 4 * time.Hour
	// headerTimeout limits the time for a request's header.
	headerTimeout = 10 * time.Second
)

// Server serves sessions. Its methods are safe for concurrent use.
type Server struct {
	socket  string
	streams streaming.Server
	http    *http.Server
}

// New returns a server for a socket at a path of at most 107 bytes.
func New(socket string, rt Runtime) (*Server, error) {
	config := streaming.DefaultConfig
	config.BaseURL = &url.URL{Scheme: "http", Host: "localhost"}
	config.StreamIdleTimeout = idleTimeout
	streams, err := streaming.NewServer(config, adapter{rt})
	if err != nil {
		return nil, fmt.Errorf("prepare streaming server: %w", err)
	}
	return &Server{socket: socket, streams: streams, http: &http.Server{Handler: streams, ReadHeaderTimeout: headerTimeout}}, nil
}

// Run serves until ctx ends, and then ends all sessions. It replaces what is at the path of
// the socket, which only root can connect to.
func (s *Server) Run(ctx context.Context) error {
	if err := os.Remove(s.socket); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("serve sessions: %w", err)
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: s.socket, Net: "unix"})
	if err != nil {
		return fmt.Errorf("serve sessions: %w", err)
	}
	if err := os.Chmod(s.socket, 0o600); err != nil {
		return errors.Join(fmt.Errorf("serve sessions: %w", err), l.Close())
	}
	defer context.AfterFunc(ctx, func() { _ = s.http.Close() })()
	if err := s.http.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve sessions: %w", err)
	}
	return nil
}

// Exec returns the URL of a command in a container. The request must have at least one
// stream, and no stderr with a terminal.
func (s *Server) Exec(r *runtimeapi.ExecRequest) (string, error) {
	response, err := s.streams.GetExec(r)
	return s.url(response.GetUrl(), err)
}

// Attach returns the URL of a session with the first process of a container. The request has
// the rules of Exec.
func (s *Server) Attach(r *runtimeapi.AttachRequest) (string, error) {
	response, err := s.streams.GetAttach(r)
	return s.url(response.GetUrl(), err)
}

// PortForward returns the URL of a session with ports of a sandbox.
func (s *Server) PortForward(r *runtimeapi.PortForwardRequest) (string, error) {
	response, err := s.streams.GetPortForward(r)
	return s.url(response.GetUrl(), err)
}

// url returns unix:/SOCKET:/PATH for a URL of the streaming server.
func (s *Server) url(text string, err error) (string, error) {
	if err != nil {
		return "", err
	}
	u, err := url.Parse(text)
	if err != nil {
		return "", fmt.Errorf("parse URL of session: %w", err)
	}
	return "unix:" + s.socket + ":" + u.EscapedPath(), nil
}

// adapter is a Runtime for the streaming server.
type adapter struct{ runtime Runtime }

func (a adapter) Exec(ctx context.Context, containerID string, cmd []string, in io.Reader, out, err io.WriteCloser, tty bool, resize <-chan remotecommand.TerminalSize) error {
	s, end := streamsOf(ctx, in, out, err, tty, resize)
	defer end()
	code, failed := a.runtime.Exec(ctx, containerID, cmd, s)
	if failed != nil || code == 0 {
		return failed
	}
	return utilexec.CodeExitError{Err: fmt.Errorf("command exited with code %d", code), Code: int(code)}
}

func (a adapter) Attach(ctx context.Context, containerID string, in io.Reader, out, err io.WriteCloser, tty bool, resize <-chan remotecommand.TerminalSize) error {
	s, end := streamsOf(ctx, in, out, err, tty, resize)
	defer end()
	return a.runtime.Attach(ctx, containerID, s)
}

func (a adapter) PortForward(ctx context.Context, sandboxID string, port int32, stream io.ReadWriteCloser) error {
	return a.runtime.PortForward(ctx, sandboxID, port, stream)
}

// streamsOf converts streams. A nil io.WriteCloser must not become a non-nil io.Writer.
func streamsOf(ctx context.Context, in io.Reader, out, err io.WriteCloser, tty bool, resize <-chan remotecommand.TerminalSize) (s Streams, end func()) {
	s = Streams{Stdin: in, Terminal: tty}
	if out != nil {
		s.Stdout = out
	}
	if err != nil {
		s.Stderr = err
	}
	if resize == nil {
		return s, func() {}
	}
	ctx, end = context.WithCancel(ctx)
	sizes := make(chan oci.Size)
	s.Resize = sizes
	go func() {
		defer close(sizes)
		for {
			select {
			case size, ok := <-resize:
				if !ok {
					return
				}
				select {
				case sizes <- oci.Size{Width: size.Width, Height: size.Height}:
				case <-ctx.Done():
					return
				}
			case <-ctx.Done():
				return
			}
		}
	}()
	return s, end
}
