package local

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"slices"
	"syscall"
	"time"

	"github.com/tinylet/tinylet/agent/pod/event"
)

// Errors of a Client, for errors.Is. Their texts include a remedy.
var (
	// ErrNotRunning means that no agent listens on the socket, or that the agent closed
	// the connection before the end of its response.
	ErrNotRunning = errors.New("the agent is not running; start tinylet, or pass the path of its socket")
	// ErrNotRoot means that the caller has no permission to access the agent.
	ErrNotRoot = errors.New("only root may access the agent; run the command as root")
	// ErrNoResponse means that the agent did not respond within 20 s.
	ErrNoResponse = errors.New("the agent does not respond; see its log, and /healthz?verbose on its healthzPort")
)

// Limits of a Client.
const (
	answerTimeout = 20 * time.Second
	maxAnswer     = 64 << 20 // bytes
)

// Client calls a running agent over its socket. It keeps no connection open
// and is safe for concurrent use.
type Client struct {
	path string
	http http.Client
}

// NewClient returns a client for the socket at path. It opens nothing yet.
func NewClient(path string) *Client {
	c := &Client{path: path}
	c.http.Transport = &http.Transport{
		DisableKeepAlives: true,
		DialContext:       func(ctx context.Context, _, _ string) (net.Conn, error) { return c.dial(ctx) },
	}
	return c
}

func (c *Client) dial(ctx context.Context) (net.Conn, error) {
	var d net.Dialer
	return d.DialContext(ctx, "unix", c.path)
}

// Dial connects to the agent, for PathExec and PathAttach. It blocks until
// there is a connection or ctx ends.
func (c *Client) Dial(ctx context.Context) (net.Conn, error) {
	conn, err := c.dial(ctx)
	if err != nil {
		return nil, c.failed(ctx, err)
	}
	return conn, nil
}

// Pods lists the pods whose name, or namespace/name, begins with name; ""
// lists all. Like all methods of Client except Dial, Drain and WatchEvents, it blocks
// until the response is complete, ctx ends, or 20 s have passed.
func (c *Client) Pods(ctx context.Context, name string) ([]Pod, error) {
	pods, err := get[[]Pod](ctx, c, PathPods+"?"+url.Values{"name": {name}}.Encode())
	return slices.DeleteFunc(pods, func(p Pod) bool { return p.Pod == nil }), err
}

// Events lists the recent events, the oldest first.
func (c *Client) Events(ctx context.Context) ([]event.Event, error) {
	return get[[]event.Event](ctx, c, PathEvents)
}

// Status returns the status of the running agent.
func (c *Client) Status(ctx context.Context) (Status, error) {
	return get[Status](ctx, c, PathStatus)
}

// Metrics writes the agent's metrics to w, in the text format of Prometheus. It
// returns an error of w unchanged.
func (c *Client) Metrics(ctx context.Context, w io.Writer) error {
	var text []byte
	err := c.call(ctx, http.MethodGet, PathMetrics, func(body io.Reader) (err error) {
		text, err = io.ReadAll(body)
		return err
	})
	if err == nil {
		_, err = w.Write(text)
	}
	return err
}

// failed adds the socket and a remedy to an error of a call.
func (c *Client) failed(ctx context.Context, err error) error {
	return fmt.Errorf("call agent on %s: %w", c.path, explain(ctx, err))
}

func get[T any](ctx context.Context, c *Client, path string) (result T, err error) {
	err = c.call(ctx, http.MethodGet, path, func(body io.Reader) error { return json.NewDecoder(body).Decode(&result) })
	return result, err
}

// call sends a request and reads its response, within answerTimeout.
func (c *Client) call(ctx context.Context, method, path string, read func(body io.Reader) error) error {
	ctx, cancel := context.WithTimeoutCause(ctx, answerTimeout, ErrNoResponse)
	defer cancel()
	resp, err := c.open(ctx, method, path)
	if err != nil {
		return c.failed(ctx, err)
	}
	defer resp.Body.Close()
	if err := read(io.LimitReader(resp.Body, maxAnswer)); err != nil {
		return c.failed(ctx, fmt.Errorf("read response: %w", err))
	}
	return nil
}

// open sends a request and returns the response if its status is 200.
func (c *Client) open(ctx context.Context, method, path string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, "http://tinylet"+path, nil)
	if err != nil {
		return nil, err
	}
	resp, err := c.http.Do(req)
	if err != nil || resp.StatusCode == http.StatusOK {
		return resp, err
	}
	defer resp.Body.Close()
	if resp.StatusCode == http.StatusForbidden {
		return nil, ErrNotRoot
	}
	var e Error
	body := json.NewDecoder(io.LimitReader(resp.Body, maxAnswer))
	if err := body.Decode(&e); err != nil || e.Error == "" {
		e.Error = "unexpected status " + resp.Status
	}
	return nil, errors.New(e.Error)
}

// explain maps errors of the system to the errors of Client. The result of ctx's end is its
// cause.
func explain(ctx context.Context, err error) error {
	var u *url.Error
	if errors.As(err, &u) {
		err = u.Err // without the URL, whose host is made up
	}
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ECONNREFUSED):
		return ErrNotRunning
	case errors.Is(err, fs.ErrPermission):
		return ErrNotRoot
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
		return ErrNotRunning // the agent exited during the request
	}
	return err
}
