package server

import (
	"bufio"
	"net"
	"net/http"
	"time"
)

// rearm is how much of a deadline may be used up before it is set anew: to
// set it costs a system call or a message.
const rearm = time.Second

// paced is an answer whose reader has to take something every writeTime. The
// deadline counts only while something is written, so what is made slowly, or
// waits for more, is not cut off. It is for one goroutine.
type paced struct {
	http.ResponseWriter
	control *http.ResponseController
	armed   time.Time // the deadline was set then; zero is none
	last    time.Time // when the answer has to be over; zero is never
	wrote   bool
	taken   bool // the connection is somebody else's
}

// newPaced takes off the deadline that the server has set for the request's
// beginning.
func newPaced(w http.ResponseWriter) *paced {
	p := &paced{ResponseWriter: w, control: http.NewResponseController(w)}
	p.set(time.Time{})
	return p
}

// set sets the deadline. Whoever cannot has no connection.
func (p *paced) set(t time.Time) { _ = p.control.SetWriteDeadline(t) }

func (p *paced) arm() {
	now := time.Now()
	if !p.armed.IsZero() && now.Sub(p.armed) < rearm {
		return
	}
	p.armed = now
	deadline := now.Add(writeTime)
	if !p.last.IsZero() && p.last.Before(deadline) {
		deadline = p.last
	}
	p.set(deadline)
}

// rest takes the deadline off until more is written: one of HTTP/2 ends the
// stream also while nobody writes.
func (p *paced) rest() {
	p.armed = time.Time{}
	p.set(time.Time{})
}

// finish bounds how long the server may take for what it has not sent yet.
func (p *paced) finish() {
	if p.taken {
		return
	}
	p.armed = time.Time{}
	p.arm()
}

// Write implements io.Writer.
func (p *paced) Write(data []byte) (int, error) {
	p.arm()
	p.wrote = true
	return p.ResponseWriter.Write(data)
}

// WriteHeader implements http.ResponseWriter.
func (p *paced) WriteHeader(code int) {
	p.wrote = true
	p.ResponseWriter.WriteHeader(code)
}

// Flush implements http.Flusher.
func (p *paced) Flush() { _ = p.FlushError() }

// FlushError sends what was written. What waits for more is at rest then.
func (p *paced) FlushError() error {
	p.arm()
	p.wrote = true
	if err := p.control.Flush(); err != nil {
		return err
	}
	p.rest()
	return nil
}

// Hijack implements http.Hijacker, which many look for in the type. It fails
// with HTTP/2.
func (p *paced) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	c, buffered, err := p.control.Hijack()
	p.taken = err == nil
	return c, buffered, err
}

// Unwrap is for http.ResponseController.
func (p *paced) Unwrap() http.ResponseWriter { return p.ResponseWriter }

// text answers with a short text that no browser takes for anything else.
func text(w http.ResponseWriter, code int, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(code)
	_, _ = w.Write([]byte(text)) // who went away needs no answer
}

// tooMany is what who asks for too much at once is told.
func tooMany(w http.ResponseWriter) {
	w.Header().Set("Retry-After", "1")
	text(w, http.StatusTooManyRequests, "Too many requests, please try again later.\n")
}

// busy is what who has waited too long for others is told.
func busy(w http.ResponseWriter) {
	w.Header().Set("Retry-After", "1")
	text(w, http.StatusServiceUnavailable, "The node is busy with the same question of others, please try again later.\n")
}

// abort breaks the connection off, so that nobody takes half an answer for a
// whole one.
func abort() { panic(http.ErrAbortHandler) }
