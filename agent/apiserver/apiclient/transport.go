package apiclient

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Time limits that detect dead peers.
const (
	dialLimit = 30 * time.Second // on a link of 1 kB/s, a TLS handshake takes 5 s
	// pingAfter is the default of Config.PingAfter.
	pingAfter = 15 * time.Second
	// answerLimit is how long no byte may arrive after a ping was sent. This limit
	// detects a dead link.
	answerLimit = 10 * time.Second
	// unackedLimit is how long sent bytes may remain without a TCP acknowledgement.
	unackedLimit = 25 * time.Second
	// pingLimit is the time limit for the response to a ping. On a link of 1 kB/s,
	// the response follows everything that was sent before it, and one frame takes
	// 16 s.
	pingLimit   = 5 * time.Minute
	headerLimit = 60 * time.Second
	// stallLimit is how long a response other than the events of a watch may stall.
	stallLimit = 60 * time.Second
	// The receive windows bound the memory that the server can make the client use.
	connectionWindow = 1 << 20
	streamWindow     = 256 << 10
)

// Errors of requests without a complete response.
var (
	// ErrStalled means that a response began and then stalled.
	ErrStalled = errors.New("response stalled")
	// ErrSilent means that a connection receives nothing, not even the response to
	// a ping.
	ErrSilent = errors.New("no data from the API server: the link is dead or the server hangs")
)

// transport sends requests over one counted connection.
type transport struct {
	base   *http.Transport
	token  func() (string, error)
	agent  string
	host   string // of the server's URL, without port
	meter  *Meter
	stall  time.Duration                 // stallLimit
	silent time.Duration                 // how long no byte may arrive: ping and answerLimit
	source func(far net.Addr) netip.Addr // the source address for far

	mu       sync.Mutex
	conns    map[*countedConn]struct{}
	answered time.Time // when the server last sent a response
	failure  error     // of the last attempt that its caller did not cancel, nil if it got a response
	recovery recovery
}

func serverURL(server string) (*url.URL, error) {
	u, err := url.Parse(server)
	if err != nil {
		return nil, fmt.Errorf("parse API server URL: %w", err)
	}
	switch {
	case u.Host == "":
		return nil, fmt.Errorf("API server URL %q: want a URL such as https://10.0.0.1:6443", u.Redacted())
	case u.User != nil:
		return nil, fmt.Errorf("API server URL %q: must not contain credentials, because it is logged", u.Redacted())
	case u.Scheme == "https":
	case u.Scheme == "http" && loopback(u.Hostname()):
	default:
		return nil, fmt.Errorf("API server URL %q: only https is allowed, and http on loopback", u)
	}
	return u, nil
}

func loopback(host string) bool {
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || (err == nil && ip.IsLoopback())
}

func newTransport(c *Config, server *url.URL) (*transport, error) {
	ping := cmp.Or(c.PingAfter, pingAfter)
	t := &transport{
		token: c.Token, agent: c.UserAgent, host: server.Hostname(), meter: c.Meter, stall: stallLimit, silent: ping + answerLimit, source: sourceOf,
		conns: make(map[*countedConn]struct{}),
	}
	if t.meter == nil {
		t.meter = new(Meter)
	}
	tlsConfig := &tls.Config{
		MinVersion: tls.VersionTLS12, ServerName: c.ServerName,
		InsecureSkipVerify: c.Insecure, //nolint:gosec // set by the operator; logged where it is read
	}
	if len(c.CA) > 0 {
		tlsConfig.RootCAs = x509.NewCertPool()
		if !tlsConfig.RootCAs.AppendCertsFromPEM(c.CA) {
			return nil, fmt.Errorf("API server %s: CA contains no certificate in PEM", server)
		}
	}
	if c.Certificate != nil {
		tlsConfig.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			cert, err := c.Certificate()
			if err != nil || cert == nil {
				// Anonymous: the server's response explains more than a failed handshake.
				return &tls.Certificate{}, err
			}
			return cert, nil
		}
	}
	proxy := c.Proxy
	if proxy == nil {
		proxy = http.ProxyFromEnvironment
	}
	dialer := &net.Dialer{Timeout: dialLimit, KeepAlive: -1} // HTTP/2 pings
	t.base = &http.Transport{
		Proxy:           proxy,
		TLSClientConfig: tlsConfig,
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			if c.Ready != nil {
				if err := c.Ready(ctx); err != nil {
					return nil, err
				}
			}
			conn, err := dialer.DialContext(ctx, network, address)
			if err != nil {
				return nil, err
			}
			setUserTimeout(conn)
			return t.counted(conn), nil
		},
		ForceAttemptHTTP2:     true,
		TLSHandshakeTimeout:   dialLimit,
		ResponseHeaderTimeout: headerLimit,
		IdleConnTimeout:       5 * time.Minute, // well above the renewal interval of the Lease
		MaxIdleConnsPerHost:   1,
		// All requests wait for the same connection: on a slow link, one handshake
		// for each request would never finish.
		MaxConnsPerHost: 1,
		HTTP2: &http.HTTP2Config{
			SendPingTimeout: ping, PingTimeout: pingLimit,
			MaxReceiveBufferPerConnection: connectionWindow, MaxReceiveBufferPerStream: streamWindow,
		},
	}
	return t, nil
}

// RoundTrip sends one request. Every response but the events of a watch is aborted if it
// stalls.
func (t *transport) RoundTrip(req *http.Request) (*http.Response, error) {
	what, _ := req.Context().Value(purposeKey{}).(purpose)
	counter, counted := t.meter.of(what)
	attempt := &exchange{counted: counted, method: req.Method, host: req.URL.Host, begun: time.Now()}
	over := func() {}
	if what.verb != "watch" { // a watch never counts as in flight
		t.meter.begun.Add(1)
		over = sync.OnceFunc(func() {
			t.meter.ended.Add(1)
			attempt.over()
		})
	}
	ctx, cancel := context.WithCancelCause(req.Context())
	req = req.Clone(ctx) // a RoundTripper must not modify its request
	if t.agent != "" {
		req.Header.Set("User-Agent", t.agent)
	}
	if t.token != nil {
		token, err := t.token()
		if err != nil {
			err = fmt.Errorf("get bearer token: %w", err)
			if req.Body != nil {
				_ = req.Body.Close() // it was not read
			}
			t.note(req.Context(), nil, err)
			attempt.answered(0)
			over()
			cancel(nil)
			return nil, err
		}
		if token != "" {
			req.Header.Set("Authorization", "Bearer "+token)
		}
	}
	countSent(req, counter)
	resp, err := t.base.RoundTrip(req)
	t.note(req.Context(), resp, err)
	if err != nil {
		attempt.answered(0)
		over()
		cancel(nil)
		return nil, err
	}
	attempt.answered(resp.StatusCode)
	body := &countedBody{ReadCloser: resp.Body, count: counter.received.Add, close: func() { cancel(nil) }}
	if what.verb != "watch" || resp.StatusCode != http.StatusOK {
		timer := time.AfterFunc(t.stall, func() { cancel(ErrStalled) })
		body.count = func(n uint64) uint64 {
			timer.Reset(t.stall)
			return counter.received.Add(n)
		}
		body.close = func() {
			timer.Stop()
			cancel(nil)
			over()
		}
		body.cause = func() error { return context.Cause(ctx) }
	}
	resp.Body = body
	return resp, nil
}

// countSent counts the body of a request each time that it is sent.
func countSent(req *http.Request, counter *counter) {
	if req.Body == nil || req.Body == http.NoBody {
		return
	}
	req.Body = &countedBody{ReadCloser: req.Body, count: counter.sent.Add}
	again := req.GetBody
	if again == nil {
		return
	}
	req.GetBody = func() (io.ReadCloser, error) {
		body, err := again()
		if err != nil {
			return nil, err
		}
		return &countedBody{ReadCloser: body, count: counter.sent.Add}, nil
	}
}

// setUserTimeout makes the kernel reset a connection when the peer
// acknowledges nothing of the sent bytes for unackedLimit (TCP_USER_TIMEOUT in
// tcp(7)). Any sent bytes thus detect a dead link without a ping. A connection
// without this option relies on the pings.
func setUserTimeout(conn net.Conn) {
	tcp, ok := conn.(*net.TCPConn)
	if !ok {
		return
	}
	if raw, err := tcp.SyscallConn(); err == nil {
		_ = raw.Control(func(fd uintptr) {
			_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(unackedLimit/time.Millisecond))
		})
	}
}

// note records the result of an exchange, unless it failed after the caller's context
// ended, by cancellation or deadline.
func (t *transport) note(ctx context.Context, resp *http.Response, err error) {
	if err != nil && ctx.Err() != nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	now := time.Now()
	if t.failure = err; err == nil {
		t.answered = now
	}
	t.recovery.attempt(resp, err, now)
}

// countedBody counts the bytes that are read from a body.
type countedBody struct {
	io.ReadCloser
	count func(uint64) uint64
	close func()       // nil does nothing
	cause func() error // why the response was aborted; may be nil
}

func (b *countedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.count(uint64(n))
	if err != nil && b.cause != nil && errors.Is(b.cause(), ErrStalled) {
		err = ErrStalled
	}
	return n, err
}

func (b *countedBody) Close() error {
	if b.close != nil {
		b.close()
	}
	return b.ReadCloser.Close()
}

// Reconnect closes every connection, so that the next requests present the current
// certificate. Requests and watches in flight fail.
func (c *Client) Reconnect() {
	c.transport.base.CloseIdleConnections()
	for _, conn := range c.transport.open() {
		_ = conn.Close() // the error does not matter
	}
}

// open returns the open connections.
func (t *transport) open() []*countedConn {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Collect(maps.Keys(t.conns))
}

// Contact returns when the server last sent a response, zero for never, and the
// error of the last attempt, nil if it got a response. Attempts whose context ended
// do not count.
func (c *Client) Contact() (answered time.Time, err error) {
	c.transport.mu.Lock()
	defer c.transport.mu.Unlock()
	return c.transport.answered, c.transport.failure
}
