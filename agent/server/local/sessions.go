package local

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"
)

// Paths of exec and attach sessions, which are the kubelet's. Config.Streaming
// responds with an upgrade, or with an error as text.
const (
	// PathExec runs a command: PathExec + NAMESPACE/POD[/UID]/CONTAINER.
	PathExec = "/exec/"
	// PathAttach attaches to a container's input and output.
	PathAttach = "/attach/"
)

const (
	// maxSessions limits the sessions on the socket. After the upgrade a
	// session does not count against maxConnections.
	maxSessions = 16
	// beginTimeout is the timeout of a session's upgrade or error response. It
	// includes the time of the runtime's response.
	beginTimeout = time.Minute
)

// streaming serves exec and attach requests, whose connections are hijacked and
// then have no deadlines.
func (s *Server) streaming(w http.ResponseWriter, r *http.Request) {
	if s.config.Streaming == nil {
		http.Error(w, "exec and attach are not supported", http.StatusNotFound)
		return
	}
	select {
	case s.sessions <- struct{}{}:
	default:
		w.Header().Set("Retry-After", "10")
		http.Error(w, fmt.Sprintf("too many exec and attach sessions (limit %d): end one of them", maxSessions), http.StatusTooManyRequests)
		return
	}
	leave := sync.OnceFunc(func() { <-s.sessions })
	taken := &taking{ResponseWriter: w, leave: leave}
	defer func() { // also if the handler panics
		if !taken.over {
			leave()
		}
	}()
	// The server's deadline is for a response without waiting.
	if err := http.NewResponseController(w).SetWriteDeadline(time.Now().Add(beginTimeout)); err != nil {
		http.Error(w, "start session: "+err.Error(), http.StatusInternalServerError)
		return
	}
	s.config.Streaming.ServeHTTP(taken, r)
}

// taking lets a handler hijack the connection. The connection then counts as a
// session and no longer against maxConnections.
type taking struct {
	http.ResponseWriter
	leave func()
	over  bool
}

// Unwrap supports http.ResponseController.
func (t *taking) Unwrap() http.ResponseWriter { return t.ResponseWriter }

// Hijack implements http.Hijacker.
func (t *taking) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, buffered, err := http.NewResponseController(t.ResponseWriter).Hijack()
	if err != nil {
		return nil, nil, err
	}
	gated, ok := conn.(*gatedConn)
	if !ok {
		conn.Close()
		return nil, nil, errors.New("hijack connection: not a connection of this socket")
	}
	inner, ok := gated.Conn.(*net.UnixConn)
	if !ok {
		conn.Close()
		return nil, nil, errors.New("hijack connection: not a unix socket")
	}
	gated.once.Do(gated.leave)
	t.over = true
	return &sessionConn{UnixConn: inner, leave: t.leave}, buffered, nil
}

// sessionConn releases its session when it is closed. Unlike a gatedConn, its
// two directions can be closed separately.
type sessionConn struct {
	*net.UnixConn
	leave func()
}

// Close closes the connection and releases the session.
func (c *sessionConn) Close() error {
	err := c.UnixConn.Close()
	c.leave()
	return err
}
