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
	"github.com/tinylet/tinylet/agent/server/connlimit"
)

// How many connections there may be at a time. A connection costs up to
// 50 kB; a node is called by few, each of whom needs one or two. An API
// server that proxies many streams needs one for each, and opens them at once.
const (
	maxPromoted = 80
	maxPending  = 16
	maxWaiting  = 64
	// pendingRequests is how many requests at a time a connection may have
	// that shows no certificate, before the first one was allowed: they wait
	// for reviews.
	pendingRequests = 8
)

// Limits of the listener. Headers have the tokens of their senders, and the
// commands that exec is to run in their path.
const (
	maxHeader     = 32 << 10
	maxBody       = 64 << 10
	maxStreams    = 16 // of a connection of HTTP/2
	maxReceive    = 64 << 10
	headerTime    = 10 * time.Second // the handshake too
	bodyTime      = 10 * time.Second
	writeTime     = 30 * time.Second
	idleTime      = 90 * time.Second // as the kubelet's
	quiet         = time.Minute      // until a quiet client is asked for a sign of life
	endTime       = 2 * time.Second
	snapshotTime  = 5 * time.Minute
	maxRequests   = 128
	maxFollowed   = 48 // each has one of the 128 inotify instances that the kernel gives a user
	maxSnapshots  = 4
	snapshotQueue = 10 * time.Second
)

type (
	connKey   struct{}
	endingKey struct{}
)

// serve answers on l until ctx ends or accepting fails, and returns the
// latter's error. All that it started is done then, and l is closed.
func (s *Server) serve(ctx context.Context, l net.Listener) error {
	base, cut := context.WithCancel(context.WithoutCancel(ctx))
	defer cut()
	base = context.WithValue(base, endingKey{}, ctx)
	var running sync.WaitGroup
	srv := &http.Server{
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			running.Add(1)
			defer running.Done()
			s.enter(w, r)
		}),
		TLSConfig:         s.tls,
		Protocols:         new(http.Protocols),
		ReadHeaderTimeout: headerTime,
		WriteTimeout:      writeTime,
		IdleTimeout:       idleTime,
		MaxHeaderBytes:    maxHeader,
		HTTP2: &http.HTTP2Config{
			MaxConcurrentStreams: maxStreams, MaxReadFrameSize: 16 << 10,
			MaxReceiveBufferPerConnection: maxReceive, MaxReceiveBufferPerStream: maxReceive,
			WriteByteTimeout: writeTime,
		},
		ErrorLog:    slog.NewLogLogger(s.config.Log.Handler(), slog.LevelDebug),
		BaseContext: func(net.Listener) context.Context { return base },
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			if t, ok := c.(*tls.Conn); ok {
				c = t.NetConn()
			}
			return context.WithValue(ctx, connKey{}, c)
		},
	}
	srv.Protocols.SetHTTP1(true)
	srv.Protocols.SetHTTP2(s.tls.NextProtos[0] == "h2")
	failed := make(chan error, 1)
	limited := connlimit.New(l, connlimit.Config{Promoted: maxPromoted, Pending: maxPending, Waiting: maxWaiting})
	go func() { failed <- srv.ServeTLS(limited, "", "") }()

	var err error
	select {
	case err = <-failed:
	case <-ctx.Done():
		if shutdown(srv, base) == nil {
			err = <-failed
			break
		}
		cut()
		_ = srv.Close() // cuts off what did not end by itself
		err = <-failed
	}
	cut() // streams on connections that were taken over end by it
	_ = srv.Close()
	running.Wait()
	return err
}

// shutdown lets the answers under way end, for a while.
func shutdown(srv *http.Server, ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, endTime)
	defer cancel()
	return srv.Shutdown(ctx)
}

// enter bounds what a request may bring, and what may wait on one connection
// before any of it was allowed. It comes before the guard.
func (s *Server) enter(w http.ResponseWriter, r *http.Request) {
	defer s.recover(r)
	if c, ok := r.Context().Value(connKey{}).(*connlimit.Conn); ok {
		defer c.End()
		if c.Begin() > pendingRequests && !c.Promoted() && !s.certified(r.TLS) {
			tooMany(w)
			return
		}
	}
	if r.Body != nil && r.Body != http.NoBody {
		// No request needs more than a form.
		_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(bodyTime)) // both protocols have them
		r.Body = http.MaxBytesReader(w, r.Body, maxBody)
	}
	s.guard.ServeHTTP(w, r)
}

// recover tells of a handler that panics, which ends the connection.
func (s *Server) recover(r *http.Request) {
	p := recover()
	if p == nil {
		return
	}
	if err, ok := p.(error); !ok || !errors.Is(err, http.ErrAbortHandler) {
		s.config.Log.Error("the answer to a request broke down", "method", r.Method, "path", r.URL.Path, "panic", p, "stack", string(debug.Stack()))
	}
	panic(http.ErrAbortHandler)
}

// admitted answers a request that has its right.
func (s *Server) admitted(w http.ResponseWriter, r *http.Request) {
	if c, ok := r.Context().Value(connKey{}).(*connlimit.Conn); ok {
		if user := authn.From(r.Context()); user != nil && user.Name != authn.Anonymous {
			c.Promote(user.Name)
		}
	}
	if !s.slots.requests.try() {
		tooMany(w)
		return
	}
	defer s.slots.requests.free()
	p := newPaced(w)
	defer p.finish()
	s.route(p, r)
}

// slots bound what goes on at a time.
type slots struct {
	requests, followed, snapshots slot
}

func newSlots() slots {
	return slots{make(slot, maxRequests), make(slot, maxFollowed), make(slot, maxSnapshots)}
}

type slot chan struct{}

// try takes a place, if one is free.
func (s slot) try() bool {
	select {
	case s <- struct{}{}:
		return true
	default:
		return false
	}
}

// wait takes a place as soon as one is free, and says whether that was in
// time.
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
