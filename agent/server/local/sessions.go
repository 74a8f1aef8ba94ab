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
	select {
	case s.sessions <- struct{}{}:
	default:
		w.Header().Set("Retry-After", "10")
		http.Error(w, fmt.Sprintf("too many exec and attach sessions (limit %d): end one of them", maxSessions), http.StatusTooManyRequests)
		return
	}
	leave := sync.OnceFunc(func() { <-s.sessions })
	taken := &hijackWriter{ResponseWriter: w, release: leave}
	defer func() { // also if the handler panics
		if !taken.hijacked {
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

// hijackWriter lets a handler hijack the connection. The connection then counts as a
// session and no longer against maxConnections.
type hijackWriter struct {
	http.ResponseWriter
	release  func()
	hijacked bool
}

// Unwrap supports http.ResponseController.
func (t *hijackWriter) Unwrap() http.ResponseWriter { return t.ResponseWriter }

// Hijack implements http.Hijacker.
func (t *hijackWriter) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, buffered, err := http.NewResponseController(t.ResponseWriter).Hijack()
	if err != nil {
		return nil, nil, err
	}
	gated, ok := conn.(*limitedConn)
	if !ok {
		conn.Close()
		return nil, nil, errors.New("hijack connection: not a connection of this socket")
	}
	inner, ok := gated.Conn.(*net.UnixConn)
	if !ok {
		conn.Close()
		return nil, nil, errors.New("hijack connection: not a unix socket")
	}
	gated.release()
	t.hijacked = true
	return &sessionConn{UnixConn: inner, release: t.release}, buffered, nil
}

// sessionConn releases its session when it is closed. Unlike a limitedConn, its
// two directions can be closed separately.
type sessionConn struct {
	*net.UnixConn
	release func()
}

// Close closes the connection and releases the session.
func (c *sessionConn) Close() error {
	err := c.UnixConn.Close()
	c.release()
	return err
}
