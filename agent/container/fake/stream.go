package fake

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strconv"
	"time"

	"golang.org/x/net/websocket"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/tinylet/tinylet/agent/container"
)

// channelProtocol is the only subprotocol of WebSocket that is served. Each
// message begins with the number of its channel. The protocol cannot signal the
// end of stdin.
const channelProtocol = "v4.channel.k8s.io"

// The channels of a command. A forwarded port has two, for data and errors.
const (
	channelStdin = iota
	channelStdout
	channelStderr
	channelStatus
)

// streams is the streaming server; pending has the URLs that are not used yet.
type streams struct {
	base    string
	pending map[string]func(context.Context, *channels)
}

// ServeStreams serves exec, attach and port-forward on a loopback address, over
// WebSocket only. stop ends it and waits for the sessions. Without ServeStreams
// the methods of container.Streams return ErrUnsupported.
func (r *Runtime) ServeStreams() (stop func(), err error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("listen for streams: %w", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	// The server does not wait for sessions, whose connections are hijacked.
	sessions := make(chan struct{}, 1024)
	server := &http.Server{
		ReadHeaderTimeout: r.timeout,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
			sessions <- struct{}{}
			defer func() { <-sessions }()
			r.serveStream(ctx, w, req)
		}),
	}
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = server.Serve(l) // returns http.ErrServerClosed
	}()
	r.mu.Lock()
	r.streams = &streams{base: "http://" + l.Addr().String(), pending: make(map[string]func(context.Context, *channels))}
	r.mu.Unlock()
	return func() {
		r.mu.Lock()
		r.streams = nil
		r.mu.Unlock()
		cancel()
		server.Close()
		<-served
		for range cap(sessions) { // until every slot is free again
			sessions <- struct{}{}
		}
	}, nil
}

// serveStream runs the session of a request's URL, once.
func (r *Runtime) serveStream(ctx context.Context, w http.ResponseWriter, req *http.Request) {
	r.mu.Lock()
	var session func(context.Context, *channels)
	if r.streams != nil {
		session = r.streams.pending[req.URL.Path]
		delete(r.streams.pending, req.URL.Path)
	}
	r.mu.Unlock()
	if session == nil {
		http.NotFound(w, req)
		return
	}
	websocket.Server{
		Handshake: func(c *websocket.Config, _ *http.Request) error {
			if !slices.Contains(c.Protocol, channelProtocol) {
				return fmt.Errorf("no supported protocol in %q", c.Protocol)
			}
			c.Protocol = []string{channelProtocol}
			return nil
		},
		Handler: func(conn *websocket.Conn) {
			ctx, cancel := context.WithCancel(ctx)
			defer cancel()
			defer context.AfterFunc(ctx, func() { conn.Close() })()
			conn.PayloadType = websocket.BinaryFrame
			session(ctx, &channels{conn})
		},
	}.ServeHTTP(w, req)
}

// channels is a session's connection.
type channels struct{ conn *websocket.Conn }

func (c *channels) send(channel byte, data []byte) error {
	_, err := c.conn.Write(append([]byte{channel}, data...))
	return err
}

// receive waits for the next message with content on a channel.
func (c *channels) receive(channel byte) ([]byte, error) {
	for {
		var message []byte
		if err := websocket.Message.Receive(c.conn, &message); err != nil {
			return nil, err
		}
		if len(message) > 1 && message[0] == channel {
			return message[1:], nil
		}
	}
}

// finish sends the result of a command in the form that kubectl reads.
func (c *channels) finish(code int32, err error) {
	status := metav1.Status{Status: metav1.StatusSuccess}
	switch {
	case err != nil:
		status = metav1.Status{Status: metav1.StatusFailure, Reason: metav1.StatusReasonInternalError, Message: err.Error()}
	case code != 0:
		status = metav1.Status{
			Status: metav1.StatusFailure, Reason: "NonZeroExitCode",
			Message: fmt.Sprintf("command terminated with non-zero exit code %d", code),
			Details: &metav1.StatusDetails{Causes: []metav1.StatusCause{{Type: "ExitCode", Message: strconv.Itoa(int(code))}}},
		}
	}
	if data, err := json.Marshal(status); err == nil {
		_ = c.send(channelStatus, data) // the client may be gone
	}
}

// prepare performs a call that returns a URL. check runs with the lock held.
func (r *Runtime) prepare(ctx context.Context, method, id string, check func() error, session func(context.Context, *channels)) (string, error) {
	return query(ctx, r, method, id, r.timeout, func() (string, error) {
		if err := check(); err != nil {
			return "", err
		}
		if r.streams == nil {
			return "", container.ErrUnsupported
		}
		path := "/" + r.nextID("stream")
		r.streams.pending[path] = session
		return r.streams.base + path, nil
	})
}

// running returns the running container of a stream; the caller holds the lock.
func (r *Runtime) running(id string) (*process, error) {
	p := r.containers[id]
	switch {
	case p == nil:
		return nil, container.ErrNotFound
	case p.status.State != runtimeapi.ContainerState_CONTAINER_RUNNING:
		return nil, fmt.Errorf("container is in %v state", p.status.State)
	}
	return p, nil
}

// validateStreams rejects the combinations of streams that CRI does not allow.
func validateStreams(stdin, stdout, stderr, tty bool) error {
	switch {
	case tty && stderr:
		return errors.New("tty and stderr cannot both be true")
	case !stdin && !stdout && !stderr:
		return errors.New("one of stdin, stdout, or stderr must be set")
	}
	return nil
}

// Exec implements container.Streams. The commands are those of ExecSync, and
// cat without a file, which echoes its input until the client leaves.
func (r *Runtime) Exec(ctx context.Context, request *runtimeapi.ExecRequest) (url string, err error) {
	var run *execution
	check := func() error {
		p, err := r.running(request.GetContainerId())
		run = &execution{r: r, p: p, broken: r.broken}
		return errors.Join(err, validateStreams(request.GetStdin(), request.GetStdout(), request.GetStderr(), request.GetTty()))
	}
	return r.prepare(ctx, "Exec", request.GetContainerId(), check, func(ctx context.Context, c *channels) {
		if request.GetStdin() && slices.Equal(request.GetCmd(), []string{"/bin/cat"}) {
			for data, err := c.receive(channelStdin); err == nil; data, err = c.receive(channelStdin) {
				_ = c.send(channelStdout, data) // the next receive fails too
			}
			return
		}
		err := run.runWithTimeout(ctx, request.GetCmd(), run.p.done)
		for channel, out := range map[byte]string{channelStdout: run.stdout.String(), channelStderr: run.stderr.String()} {
			if requested := channel == channelStdout && request.GetStdout() || channel == channelStderr && request.GetStderr(); requested && out != "" {
				_ = c.send(channel, []byte(out))
			}
		}
		c.finish(run.code, err)
	})
}

// Attach implements container.Streams: it sends the lines that the first
// process prints from then on, until the process exits.
func (r *Runtime) Attach(ctx context.Context, request *runtimeapi.AttachRequest) (url string, err error) {
	var p *process
	check := func() (err error) {
		p, err = r.running(request.GetContainerId())
		return errors.Join(err, validateStreams(request.GetStdin(), request.GetStdout(), request.GetStderr(), request.GetTty()))
	}
	return r.prepare(ctx, "Attach", request.GetContainerId(), check, func(ctx context.Context, c *channels) {
		lines := make(chan string, 64)
		r.mu.Lock()
		p.attached[lines] = struct{}{}
		r.mu.Unlock()
		defer func() {
			r.mu.Lock()
			defer r.mu.Unlock()
			delete(p.attached, lines)
		}()
		for {
			select {
			case line := <-lines:
				if err := c.send(channelStdout, []byte(line+"\n")); err != nil {
					return
				}
			case <-p.done:
				c.finish(0, nil)
				return
			case <-ctx.Done():
				return
			}
		}
	})
}

// PortForward implements container.Streams for one port, which it dials on this
// host: the fake's sandboxes have no network of their own.
func (r *Runtime) PortForward(ctx context.Context, request *runtimeapi.PortForwardRequest) (url string, err error) {
	check := func() error {
		s := r.sandboxes[request.GetPodSandboxId()]
		switch {
		case s == nil:
			return container.ErrNotFound
		case s.state != runtimeapi.PodSandboxState_SANDBOX_READY:
			return errors.New("sandbox container is not running")
		case len(request.GetPort()) != 1:
			return fmt.Errorf("fake forwards one port, not %d", len(request.GetPort()))
		}
		return nil
	}
	return r.prepare(ctx, "PortForward", request.GetPodSandboxId(), check, func(ctx context.Context, c *channels) {
		port := request.GetPort()[0]
		for channel := range byte(2) {
			_ = c.send(channel, []byte{byte(port), byte(port >> 8)}) // receive fails too
		}
		dialer := net.Dialer{Timeout: 5 * time.Second}
		conn, err := dialer.DialContext(ctx, "tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(int(port))))
		if err != nil {
			_ = c.send(1, []byte(err.Error()))
			return
		}
		defer conn.Close()
		answered := make(chan struct{})
		go func() {
			defer close(answered)
			defer c.conn.Close()
			_, _ = io.Copy(writerFunc(func(b []byte) (int, error) { return len(b), c.send(0, b) }), conn)
		}()
		for data, err := c.receive(0); err == nil; data, err = c.receive(0) {
			if _, err := conn.Write(data); err != nil {
				break
			}
		}
		conn.Close()
		<-answered
	})
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(b []byte) (int, error) { return f(b) }
