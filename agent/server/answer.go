package server

import (
	"bufio"
	"net"
	"net/http"
	"time"

	"github.com/tinylet/tinylet/agent/server/local"
)

// rearm is how long a write deadline is used before it is set again, because each setting
// has a cost (a timer of the runtime or, with HTTP/2, a message).
const rearm = time.Second

// deadlineWriter is a response writer with a write deadline: each write must finish within
// writeTimeout, less up to rearm. Each write sets the deadline, and FlushError clears it.
// So a response that waits for its first data, or for more after a flush, is not aborted.
// With HTTP/2 the deadline of a write that was not flushed also ends the stream while no
// write is in progress. A deadlineWriter must be used by one goroutine.
type deadlineWriter struct {
	http.ResponseWriter
	control          *http.ResponseController
	armed            time.Time // when the deadline was last set; zero means that it is not set
	responseDeadline time.Time // deadline of the whole response; zero means none
	wrote            bool
	hijacked         bool // the connection was hijacked
}

// newDeadlineWriter clears the write deadline that the HTTP server has set for the request.
func newDeadlineWriter(w http.ResponseWriter) *deadlineWriter {
	p := &deadlineWriter{ResponseWriter: w, control: http.NewResponseController(w)}
	p.set(time.Time{})
	return p
}

// set sets the write deadline. It fails only without a connection.
func (p *deadlineWriter) set(t time.Time) { _ = p.control.SetWriteDeadline(t) }

func (p *deadlineWriter) setDeadline() {
	now := time.Now()
	if !p.armed.IsZero() && now.Sub(p.armed) < rearm {
		return
	}
	p.armed = now
	deadline := now.Add(writeTimeout)
	if !p.responseDeadline.IsZero() && p.responseDeadline.Before(deadline) {
		deadline = p.responseDeadline
	}
	p.set(deadline)
}

// clearDeadline clears the deadline until the next write: with HTTP/2 a deadline ends the
// stream even while no write is in progress.
func (p *deadlineWriter) clearDeadline() {
	p.armed = time.Time{}
	p.set(time.Time{})
}

// setFinalDeadline sets a deadline for the data that the HTTP server has buffered.
func (p *deadlineWriter) setFinalDeadline() {
	if p.hijacked {
		return
	}
	p.armed = time.Time{}
	p.setDeadline()
}

// Write implements io.Writer.
func (p *deadlineWriter) Write(data []byte) (int, error) {
	p.setDeadline()
	p.wrote = true
	return p.ResponseWriter.Write(data)
}

// WriteHeader implements http.ResponseWriter.
func (p *deadlineWriter) WriteHeader(code int) {
	p.wrote = true
	p.ResponseWriter.WriteHeader(code)
}

// Flush implements http.Flusher.
func (p *deadlineWriter) Flush() { _ = p.FlushError() }

// FlushError sends the written data, and clears the deadline until the next write.
func (p *deadlineWriter) FlushError() error {
	p.setDeadline()
	p.wrote = true
	if err := p.control.Flush(); err != nil {
		return err
	}
	p.clearDeadline()
	return nil
}

// Hijack implements http.Hijacker, because many handlers use a type assertion for it.
// It fails with HTTP/2.
func (p *deadlineWriter) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	c, buffered, err := p.control.Hijack()
	p.hijacked = err == nil
	return c, buffered, err
}

// Unwrap is for http.ResponseController.
func (p *deadlineWriter) Unwrap() http.ResponseWriter { return p.ResponseWriter }

// writeTooMany sends the response to a request beyond a limit of concurrent requests.
func writeTooMany(w http.ResponseWriter) {
	w.Header().Set("Retry-After", "1")
	local.WriteText(w, http.StatusTooManyRequests, "Too many requests, please try again later.\n")
}

// abort aborts the response, so that clients do not take an incomplete response for a
// complete one.
func abort() { panic(http.ErrAbortHandler) }
