package local

import (
	"context"
	"encoding/json"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"
)

// Limits of both listeners. A connection serves one request. Except for drains, event
// watches and the events of the status page, which set their own deadlines, no client can
// hold a connection for longer than the timeouts. An exec or attach session is counted
// separately (sessions.go).
const (
	maxConnections  = 32 // of /healthz: with a request, and as many without
	maxHeaderBytes  = 8 << 10
	maxCommandBytes = 264 << 10 // on the socket: a command is in its URL
	readTimeout     = 5 * time.Second
	readGrace       = 20 * time.Millisecond // for a request that has arrived
	writeTimeout    = 30 * time.Second
	shutdownTimeout = 2 * time.Second
)

// serve serves HTTP on l until ctx ends (nil) or accepting fails (its error).
// It waits for all requests.
func serve(ctx context.Context, l net.Listener, h http.Handler, maxHead int, log *slog.Logger) error {
	var handlers sync.WaitGroup
	srv := &http.Server{
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			handlers.Add(1)
			defer handlers.Done()
			h.ServeHTTP(w, r)
		}),
		ReadHeaderTimeout: readTimeout,
		ReadTimeout:       readTimeout,
		WriteTimeout:      writeTimeout,
		MaxHeaderBytes:    maxHead,
		ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelDebug),
		BaseContext:       func(net.Listener) context.Context { return ctx },
		ConnContext:       withConn,
	}
	srv.SetKeepAlivesEnabled(false)
	failed := make(chan error, 1)
	go func() { failed <- srv.Serve(l) }()

	var err error
	select {
	case err = <-failed:
		_ = srv.Close() // the error of accepting is returned
	case <-ctx.Done():
		limit, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownTimeout)
		defer cancel()
		if srv.Shutdown(limit) != nil { // requests are in progress
			_ = srv.Close() // aborts them
		}
		<-failed
	}
	handlers.Wait()
	return err
}

// writeJSON writes v as JSON. The status line is sent before an error can occur,
// so the client then receives a truncated body.
func writeJSON(w http.ResponseWriter, code int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(v) // the client has disconnected
}

// limitListener limits the number of open connections; others wait in the kernel's
// queue. It is for the socket, which only root can reach.
type limitListener struct {
	net.Listener
	slots  chan struct{}
	closed chan struct{}
	once   sync.Once
}

func newLimitListener(l net.Listener, limit int) *limitListener {
	return &limitListener{Listener: l, slots: make(chan struct{}, limit), closed: make(chan struct{})}
}

func (g *limitListener) Accept() (net.Conn, error) {
	select {
	case g.slots <- struct{}{}:
	case <-g.closed:
		return nil, net.ErrClosed
	}
	c, err := g.Listener.Accept()
	if err != nil {
		<-g.slots
		return nil, err
	}
	return &limitedConn{Conn: c, release: sync.OnceFunc(func() { <-g.slots })}, nil
}

func (g *limitListener) Close() error {
	g.once.Do(func() { close(g.closed) })
	return g.Listener.Close()
}

type limitedConn struct {
	net.Conn
	release func()
}

func (c *limitedConn) Close() error {
	err := c.Conn.Close()
	c.release()
	return err
}
