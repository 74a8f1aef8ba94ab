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

// Limits that notice what has died.
const (
	dialLimit = 30 * time.Second // on a link of 1 kB/s, a TLS handshake takes 5
	// pingAfter is how long no frame may come before one is asked for.
	pingAfter = 15 * time.Second
	// answerLimit is how long after that no byte may come: the answer to the
	// ping would be here by then. It is what notices a dead link.
	answerLimit = 10 * time.Second
	// unackedLimit is how long what was sent may stay without an
	// acknowledgement of TCP.
	unackedLimit = 25 * time.Second
	// pingLimit is how long the answer to a ping may take. On a link of 1 kB/s
	// it comes after all that was sent before it, and a frame alone takes 16 s.
	pingLimit   = 5 * time.Minute
	headerLimit = 60 * time.Second
	// stallLimit is how long an answer that is no watch may stop coming.
	stallLimit = 60 * time.Second
	// Windows are memory that the server may fill unasked.
	connectionWindow = 1 << 20
	streamWindow     = 256 << 10
)

// What ends a request that nobody answers.
var (
	// ErrStalled says that an answer began and stopped coming.
	ErrStalled = errors.New("the answer stopped coming")
	// ErrSilent says that nothing at all comes over a connection, not even the
	// answer to a ping.
	ErrSilent = errors.New("the API server is silent: the link is dead, or the server hangs")
)

// transport makes requests over one counted connection.
type transport struct {
	base   *http.Transport
	token  func() (string, error)
	agent  string
	host   string // of the server's URL
	meter  *Meter
	stall  time.Duration                 // stallLimit
	silent time.Duration                 // how long no byte may come
	source func(far net.Addr) netip.Addr // from where far is reached

	mu    sync.Mutex
	conns map[*countedConn]struct{}
	last  contact

	recovery recovery
}

// contact is how the last exchange with the server went.
type contact struct {
	answered time.Time // when the server last answered anything
	err      error     // of the last attempt, nil if it was answered
}

func serverURL(server string) (*url.URL, error) {
	u, err := url.Parse(server)
	if err != nil {
		return nil, fmt.Errorf("address of the API server: %w", err)
	}
	switch {
	case u.Host == "":
		return nil, fmt.Errorf("address of the API server %q: want a URL such as https://10.0.0.1:6443", u.Redacted())
	case u.User != nil:
		return nil, fmt.Errorf("address of the API server %q: a URL with a password in it ends up in logs", u.Redacted())
	case u.Scheme == "https":
	case u.Scheme == "http" && loopback(u.Hostname()):
	default:
		return nil, fmt.Errorf("address of the API server %q: only https leaves this host", u)
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
		InsecureSkipVerify: c.Insecure, //nolint:gosec // the operator's own setting, warned of where it is read
	}
	if len(c.CA) > 0 {
		tlsConfig.RootCAs = x509.NewCertPool()
		if !tlsConfig.RootCAs.AppendCertsFromPEM(c.CA) {
			return nil, fmt.Errorf("API server %s: the CA holds no certificate in PEM", server)
		}
	}
	if c.Certificate != nil {
		tlsConfig.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			cert, err := c.Certificate()
			if err != nil || cert == nil {
				// Anonymous: the server's refusal says more than a failed handshake.
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
			giveUpUnacknowledged(conn)
			return t.counted(conn), nil
		},
		ForceAttemptHTTP2:     true,
		TLSHandshakeTimeout:   dialLimit,
		ResponseHeaderTimeout: headerLimit,
		IdleConnTimeout:       5 * time.Minute, // far over a lease's renewal
		MaxIdleConnsPerHost:   1,
		// All requests that wait for a connection wait for the same one: on a
		// thin link, as many handshakes as there are requests never end.
		MaxConnsPerHost: 1,
		HTTP2: &http.HTTP2Config{
			SendPingTimeout: ping, PingTimeout: pingLimit,
			MaxReceiveBufferPerConnection: connectionWindow, MaxReceiveBufferPerStream: streamWindow,
		},
	}
	return t, nil
}

// RoundTrip makes one request. Everything but a watch has to keep coming.
func (t *transport) RoundTrip(req *http.Request) (*http.Response, error) {
	what, _ := req.Context().Value(purposeKey{}).(purpose)
	counter, counted := t.meter.of(what)
	attempt := &exchange{counted: counted, method: req.Method, host: req.URL.Host, begun: time.Now()}
	over := func() {}
	if what.verb != "watch" { // whose events are read as they come
		t.meter.begun.Add(1)
		over = sync.OnceFunc(func() {
			t.meter.ended.Add(1)
			attempt.over()
		})
	}
	ctx, cancel := context.WithCancelCause(req.Context())
	req = req.Clone(ctx) // RoundTrip changes no request that it is given
	if t.agent != "" {
		req.Header.Set("User-Agent", t.agent)
	}
	if t.token != nil {
		token, err := t.token()
		if err != nil {
			attempt.answered(0)
			over()
			cancel(nil)
			return nil, fmt.Errorf("bearer token: %w", err)
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
	if what.verb != "watch" {
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

// countSent has a request's body counted, each time that it is sent.
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

// giveUpUnacknowledged has the kernel break a connection off when the other
// end acknowledges nothing of what was sent for unackedLimit (TCP_USER_TIMEOUT in
// tcp(7)). So whatever is sent does a ping's work, without a byte of its own.
// A connection that cannot do this is left to the pings.
func giveUpUnacknowledged(conn net.Conn) {
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

// note keeps how an exchange went. One that its caller gave up says nothing.
func (t *transport) note(ctx context.Context, resp *http.Response, err error) {
	if err != nil && ctx.Err() != nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	now := time.Now()
	if t.last.err = err; err == nil {
		t.last.answered = now
	}
	t.recovery.attempt(resp, err, now)
}

// countedBody counts what is read of a body.
type countedBody struct {
	io.ReadCloser
	count func(uint64) uint64
	close func()       // nil does nothing
	cause func() error // why the reading was given up, if it was; may be nil
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

// Reconnect closes every connection, so that the next requests show the
// current certificate. Requests and watches that are under way break off.
func (c *Client) Reconnect() {
	c.transport.base.CloseIdleConnections()
	for _, conn := range c.transport.open() {
		_ = conn.Close() // a closed connection has nothing more to tell
	}
}

// open are the connections that there are.
func (t *transport) open() []*countedConn {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Collect(maps.Keys(t.conns))
}

// Contact is when the server last answered anything, zero for never, and what
// the last attempt failed with, nil if it was answered.
func (c *Client) Contact() (answered time.Time, err error) {
	c.transport.mu.Lock()
	defer c.transport.mu.Unlock()
	return c.transport.last.answered, c.transport.last.err
}
