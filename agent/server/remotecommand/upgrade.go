package remotecommand

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/moby/spdystream"
	v1 "k8s.io/api/core/v1"
	kremotecommand "k8s.io/apimachinery/pkg/util/remotecommand"
	"k8s.io/streaming/pkg/httpstream"
	"k8s.io/streaming/pkg/httpstream/spdy"
)

// maxText limits the text of an error response in bytes.
const maxText = 16 << 10

// protocols are the supported protocols, in order of preference. They report the exit
// code and support terminal resizing. Over SPDY they are equal: v5 adds the half-close
// of stdin to v4, which SPDY has anyway.
var protocols = []string{kremotecommand.StreamProtocolV5Name, kremotecommand.StreamProtocolV4Name}

func query(c *Session) string {
	q := url.Values{}
	if len(c.Command) > 0 {
		q["command"] = c.Command
	}
	for name, asked := range map[string]bool{"input": c.Stdin != nil, "output": c.Stdout != nil, "error": c.errors(), "tty": c.TTY} {
		if asked {
			q.Set(name, "1")
		}
	}
	return q.Encode()
}

// errors reports whether the session has a stderr stream.
func (c *Session) errors() bool { return c.Stderr != nil && !c.TTY }

// upgrader requests the upgrade over a connection. Its connection after the upgrade
// reports when the server has accepted all streams, and records the command's status.
type upgrader struct {
	*spdy.SpdyRoundTripper
	conn    net.Conn
	onStart func()
	fail    context.CancelCauseFunc
	refused error        // of the request; the client's error has the URL, with the command
	missing atomic.Int32 // streams that are not created yet
	// statusBytes are the received bytes of the command's status. The client of
	// Kubernetes reports success for a session without a status.
	statusBytes atomic.Int64
}

func newUpgrader(conn net.Conn, c *Session, onStart func(), fail context.CancelCauseFunc) (*upgrader, error) {
	dialed := func(context.Context, string, string) (net.Conn, error) { return conn, nil }
	u := &upgrader{conn: conn, onStart: onStart, fail: fail}
	u.missing.Store(1)
	for _, asked := range []bool{c.Stdin != nil, c.Stdout != nil, c.errors(), c.TTY} {
		if asked {
			u.missing.Add(1)
		}
	}
	var err error
	u.SpdyRoundTripper, err = spdy.NewRoundTripperWithConfig(spdy.RoundTripperConfig{UpgradeTransport: &http.Transport{DialContext: dialed}})
	return u, err
}

// RoundTrip implements http.RoundTripper.
func (u *upgrader) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := u.SpdyRoundTripper.RoundTrip(r)
	if err != nil {
		// Not wrapped: callers must not take the connection's error for one of
		// their streams.
		u.refused = fmt.Errorf("request session: %v", err)
	}
	return resp, err
}

// NewConnection implements httpstream.UpgradeRoundTripper. For a response other than the
// requested upgrade it returns a *ResponseError, which includes the status code.
func (u *upgrader) NewConnection(resp *http.Response) (httpstream.Connection, error) {
	if resp.StatusCode != http.StatusSwitchingProtocols {
		text, _ := io.ReadAll(io.LimitReader(resp.Body, maxText)) // an incomplete text is used too
		said := strings.TrimSpace(string(text))
		if said == "" {
			said = fmt.Sprintf("server responded with %d %s", resp.StatusCode, http.StatusText(resp.StatusCode))
		}
		return nil, &ResponseError{Code: resp.StatusCode, Text: said}
	}
	if given := resp.Header.Get(httpstream.HeaderUpgrade); !strings.EqualFold(given, spdy.HeaderSpdy31) {
		return nil, &ResponseError{Code: resp.StatusCode, Text: fmt.Sprintf("server upgraded to %.40q instead of %s", given, spdy.HeaderSpdy31)}
	}
	if p := resp.Header.Get(httpstream.HeaderProtocolVersion); !slices.Contains(protocols, p) {
		return nil, &ResponseError{Code: resp.StatusCode, Text: fmt.Sprintf("server selected protocol %.40q: must be one of %s, which report the exit code", p, strings.Join(protocols, ", "))}
	}
	conn, err := u.SpdyRoundTripper.NewConnection(resp)
	if err != nil {
		return nil, &ResponseError{Code: resp.StatusCode, Text: err.Error()}
	}
	go u.failUnlessStarted(conn.CloseChan())
	return &connection{Connection: conn, upgrader: u}, nil
}

// startGrace is how long after the end of the connection its last frames are handled.
const startGrace = time.Second

// failUnlessStarted ends the session when the server has closed the connection without
// accepting all streams. CreateStream would wait for 30 s.
func (u *upgrader) failUnlessStarted(closed <-chan bool) {
	<-closed
	time.AfterFunc(startGrace, func() {
		if u.missing.Load() > 0 {
			u.fail(ErrNoStatus) // no effect after Run
		}
	})
}

// connection is the connection after the upgrade.
type connection struct {
	httpstream.Connection
	*upgrader
}

// CreateStream implements httpstream.Connection.
func (c *connection) CreateStream(header http.Header) (httpstream.Stream, error) {
	kind := header.Get(v1.StreamType)
	stream, err := c.Connection.CreateStream(header)
	switch {
	case errors.Is(err, spdystream.ErrReset):
		return nil, &CommandError{Text: fmt.Sprintf("runtime rejected stream %s", kind)}
	case err != nil:
		return nil, fmt.Errorf("%w: %v", ErrNoStatus, err)
	}
	if c.missing.Add(-1) == 0 {
		c.onStart()
	}
	if kind == v1.StreamTypeError {
		return &statusStream{stream, c.upgrader}, nil
	}
	return stream, nil
}

// Close implements httpstream.Connection. It closes the network connection first: the
// resets of the streams would wait for a write of input that the server does not read.
func (c *connection) Close() error {
	_ = c.conn.Close() // every write was delivered or is obsolete
	return c.Connection.Close()
}
