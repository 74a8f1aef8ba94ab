package server

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"runtime/debug"
	"sync"
	"time"

	"github.com/tinylet/tinylet/agent/server/authn"
	"github.com/tinylet/tinylet/agent/server/authn/cache"
	"github.com/tinylet/tinylet/agent/server/connlimit"
)

// Limits of concurrent connections. A connection costs up to 50 kB. A node has few
// clients, each with one or two connections. An API server that proxies many streams
// needs one connection for each, and opens them at the same time.
const (
	maxPromoted = 80
	maxPending  = 16
	maxWaiting  = 64
	// pendingRequests limits the concurrent requests of a connection that is not
	// promoted and has no valid client certificate: each waits for reviews.
	pendingRequests = 8
)

// Limits of the HTTP server. The headers contain bearer tokens, and the request line
// contains the commands of exec.
const (
	maxHeader       = 32 << 10
	maxBody         = 64 << 10
	maxStreams      = 16 // per HTTP/2 connection
	maxReceive      = 64 << 10
	headerTime      = 10 * time.Second // includes the TLS handshake
	bodyTime        = 10 * time.Second
	writeTimeout    = 30 * time.Second
	idleTime        = 90 * time.Second // like the kubelet's
	keepAliveIdle   = time.Minute      // idle time before TCP keepalive probes
	shutdownTimeout = 2 * time.Second
	snapshotTime    = 5 * time.Minute
	maxRequests     = 128
	maxFollowed     = 48 // each has a goroutine, an open log and watches of its directories
	maxSnapshots    = 4
	snapshotQueue   = 10 * time.Second
)

type (
	connKey   struct{}
	endingKey struct{}
)

// serve serves l until ctx ends or Accept fails, and returns the error of the HTTP server.
// Before it returns, it closes l and waits for all handlers.
func (s *Server) serve(ctx context.Context, l net.Listener) error {
	base, cut := context.WithCancel(context.WithoutCancel(ctx))
	defer cut()
	base = cache.WithBase(context.WithValue(base, endingKey{}, ctx), base)
	var running sync.WaitGroup
	srv := &http.Server{
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			running.Add(1)
			defer running.Done()
			s.limitRequest(w, r)
		}),
		TLSConfig:         s.tls,
		Protocols:         new(http.Protocols),
		ReadHeaderTimeout: headerTime,
		WriteTimeout:      writeTimeout,
		IdleTimeout:       idleTime,
		MaxHeaderBytes:    maxHeader,
		HTTP2: &http.HTTP2Config{
			MaxConcurrentStreams: maxStreams, MaxReadFrameSize: 16 << 10,
			MaxReceiveBufferPerConnection: maxReceive, MaxReceiveBufferPerStream: maxReceive,
			WriteByteTimeout: writeTimeout,
		},
		ErrorLog:    slog.NewLogLogger(s.config.Log.Handler(), slog.LevelDebug),
		BaseContext: func(net.Listener) context.Context { return base },
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			return context.WithValue(ctx, connKey{}, transportOf(c))
		},
		// A session lasts longer than the handler of its request: the request of a
		// hijacked connection never ends, so that the connection is not idle.
		ConnState: func(c net.Conn, state http.ConnState) {
			if limited, ok := transportOf(c).(*connlimit.Conn); ok && state == http.StateHijacked {
				limited.Begin()
			}
		},
	}
	srv.Protocols.SetHTTP1(true)
	srv.Protocols.SetHTTP2(s.tls.NextProtos[0] == "h2")
	var err error
	accepting := make(chan struct{})
	limited := connlimit.New(l, connlimit.Config{Promoted: maxPromoted, Pending: maxPending, Waiting: maxWaiting})
	go func() {
		defer close(accepting)
		err = srv.ServeTLS(limited, "", "")
	}()
	select {
	case <-accepting:
	case <-ctx.Done():
		limit, cancel := context.WithTimeout(base, shutdownTimeout)
		_ = srv.Shutdown(limit) // waits for the requests in flight
		cancel()
	}
	cut()           // ends the remaining requests, reviews, and streams on hijacked connections
	_ = srv.Close() // closes the remaining connections
	<-accepting
	running.Wait()
	return err
}

// transportOf returns the connection below TLS.
func transportOf(c net.Conn) net.Conn {
	if t, ok := c.(*tls.Conn); ok {
		return t.NetConn()
	}
	return c
}

// limitRequest limits the body of a request, and the concurrent requests of a connection
// before it is promoted. It runs before the guard.
func (s *Server) limitRequest(w http.ResponseWriter, r *http.Request) {
	defer s.recover(r)
	if c, ok := r.Context().Value(connKey{}).(*connlimit.Conn); ok {
		defer c.End()
		if c.Begin() > pendingRequests && !c.Promoted() && !s.hasValidCertificate(r.TLS) {
			writeTooMany(w)
			return
		}
	}
	if r.Body != nil && r.Body != http.NoBody {
		// The largest body of any request is a form.
		_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(bodyTime)) // supported by HTTP/1.1 and HTTP/2
		r.Body = http.MaxBytesReader(w, r.Body, maxBody)
	}
	s.guard.ServeHTTP(w, r)
}

// recover logs the panic of a handler and aborts the response.
func (s *Server) recover(r *http.Request) {
	p := recover()
	if p == nil {
		return
	}
	if err, ok := p.(error); !ok || !errors.Is(err, http.ErrAbortHandler) {
		s.config.Log.Error("request handler panicked", "method", r.Method, "path", r.URL.Path, "panic", p, "stack", string(debug.Stack()))
	}
	panic(http.ErrAbortHandler)
}

// serveAuthorized serves an authorized request.
func (s *Server) serveAuthorized(w http.ResponseWriter, r *http.Request) {
	if c, ok := r.Context().Value(connKey{}).(*connlimit.Conn); ok {
		if user := authn.UserFrom(r.Context()); user != nil && user.Username != authn.Anonymous {
			c.Promote(user.Username)
		}
	}
	if !s.slots.requests.try() {
		writeTooMany(w)
		return
	}
	defer s.slots.requests.free()
	p := newDeadlineWriter(w)
	defer p.setFinalDeadline()
	s.route(p, r)
}

// slots limit concurrent requests, followed logs and snapshots.
type slots struct {
	requests, followed, snapshots slot
}

type slot chan struct{}

// try acquires a slot without blocking and reports whether it did.
func (s slot) try() bool {
	select {
	case s <- struct{}{}:
		return true
	default:
		return false
	}
}

// wait blocks until it acquires a slot, ctx ends or atMost is over. It reports
// whether it acquired one.
func (s slot) wait(ctx context.Context, atMost time.Duration) bool {
	if s.try() {
		return true
	}
	timer := time.NewTimer(atMost)
	defer timer.Stop()
	select {
	case s <- struct{}{}:
		return true
	case <-timer.C:
	case <-ctx.Done():
	}
	return false
}

func (s slot) free() { <-s }
