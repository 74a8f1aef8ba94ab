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

// Paths of sessions into containers, which are the kubelet's own. They answer
// as Config.Streaming does: with an upgrade, or with text.
const (
	// PathExec runs a command: PathExec + NAMESPACE/POD[/UID]/CONTAINER.
	PathExec = "/exec/"
	// PathAttach is a container's own input and output.
	PathAttach = "/attach/"
)

const (
	// maxSessions bounds the sessions of the socket. They do not count among
	// its connections once they have begun.
	maxSessions = 16
	// beginTimeout is how long a session may take to begin, or its refusal to
	// be sent; the runtime's answer is waited for.
	beginTimeout = time.Minute
)

// streaming serves what takes over its connection, which it gets without the
// limits of a question's.
func (s *Server) streaming(w http.ResponseWriter, r *http.Request) {
	if s.config.Streaming == nil {
		http.Error(w, "this agent has no sessions into containers", http.StatusNotFound)
		return
	}
	select {
	case s.sessions <- struct{}{}:
	default:
		w.Header().Set("Retry-After", "10")
		http.Error(w, fmt.Sprintf("%d sessions into containers were begun at the board already; end one of them", maxSessions), http.StatusTooManyRequests)
		return
	}
	leave := sync.OnceFunc(func() { <-s.sessions })
	taken := &taking{ResponseWriter: w, leave: leave}
	defer func() { // also if the handler panics
		if !taken.over {
			leave()
		}
	}()
	// The one that the server set is for an answer that is there at once.
	if err := http.NewResponseController(w).SetWriteDeadline(time.Now().Add(beginTimeout)); err != nil {
		http.Error(w, "begin a session: "+err.Error(), http.StatusInternalServerError)
		return
	}
	s.config.Streaming.ServeHTTP(taken, r)
}

// taking lets a handler take over the connection, and with it the place among
// the sessions in place of that among the connections.
type taking struct {
	http.ResponseWriter
	leave func()
	over  bool
}

// Unwrap gives the rest to http.ResponseController.
func (t *taking) Unwrap() http.ResponseWriter { return t.ResponseWriter }

// Hijack is that of http.Hijacker.
func (t *taking) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, buffered, err := http.NewResponseController(t.ResponseWriter).Hijack()
	if err != nil {
		return nil, nil, err
	}
	gated, ok := conn.(*gatedConn)
	if !ok {
		conn.Close()
		return nil, nil, errors.New("take over a connection: it is none of this socket's")
	}
	inner, ok := gated.Conn.(*net.UnixConn)
	if !ok {
		conn.Close()
		return nil, nil, errors.New("take over a connection: it is no unix socket's")
	}
	gated.once.Do(gated.leave)
	t.over = true
	return &sessionConn{UnixConn: inner, leave: t.leave}, buffered, nil
}

// sessionConn gives its place back when it is closed. Unlike a gatedConn its
// two directions can be ended apart.
type sessionConn struct {
	*net.UnixConn
	leave func()
}

// Close is that of net.Conn.
func (c *sessionConn) Close() error {
	err := c.UnixConn.Close()
	c.leave()
	return err
}
