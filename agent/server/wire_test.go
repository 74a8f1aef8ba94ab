package server

import (
	"io"
	"net"
	"os"
	"sync"
	"time"
)

// wired is the buffer size of a connection in memory.
const wired = 64 << 10

// wire is one direction of a connection in memory. Unlike net.Pipe it has a buffer,
// like a socket.
type wire struct {
	mu      sync.Mutex
	changed sync.Cond
	data    []byte
	closed  bool
}

func newWire() *wire {
	w := new(wire)
	w.changed.L = &w.mu
	return w
}

// limit is the deadline of one side.
type limit struct {
	timer *time.Timer
	over  bool
}

func (w *wire) set(l *limit, t time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if l.timer != nil {
		l.timer.Stop()
	}
	l.over, l.timer = false, nil
	if !t.IsZero() {
		timer := (*time.Timer)(nil)
		timer = time.AfterFunc(time.Until(t), func() {
			w.mu.Lock()
			defer w.mu.Unlock()
			if l.timer == timer {
				l.over = true
				w.changed.Broadcast()
			}
		})
		l.timer = timer
	}
	w.changed.Broadcast()
}

// end is one end of a connection in memory.
type end struct {
	in, out          *wire
	reading, writing limit
}

// newWired returns the two ends of a connection.
func newWired() (a, b net.Conn) {
	one, other := newWire(), newWire()
	return &end{in: one, out: other}, &end{in: other, out: one}
}

func (e *end) Read(p []byte) (int, error) {
	w := e.in
	w.mu.Lock()
	defer w.mu.Unlock()
	for len(w.data) == 0 {
		switch {
		case e.reading.over:
			return 0, os.ErrDeadlineExceeded
		case w.closed:
			return 0, io.EOF
		}
		w.changed.Wait()
	}
	n := copy(p, w.data)
	w.data = w.data[n:]
	w.changed.Broadcast()
	return n, nil
}

func (e *end) Write(p []byte) (n int, err error) {
	w := e.out
	w.mu.Lock()
	defer w.mu.Unlock()
	for {
		switch {
		case e.writing.over:
			return n, os.ErrDeadlineExceeded
		case w.closed:
			return n, net.ErrClosed
		}
		some := min(len(p), wired-len(w.data))
		w.data = append(w.data, p[:some]...)
		n, p = n+some, p[some:]
		w.changed.Broadcast()
		if len(p) == 0 {
			return n, nil
		}
		w.changed.Wait()
	}
}

func (e *end) Close() error {
	for _, w := range []*wire{e.in, e.out} {
		w.mu.Lock()
		w.closed = true
		w.changed.Broadcast()
		w.mu.Unlock()
	}
	e.SetDeadline(time.Time{})
	return nil
}

func (e *end) LocalAddr() net.Addr                { return new(net.TCPAddr) }
func (e *end) RemoteAddr() net.Addr               { return new(net.TCPAddr) }
func (e *end) SetReadDeadline(t time.Time) error  { e.in.set(&e.reading, t); return nil }
func (e *end) SetWriteDeadline(t time.Time) error { e.out.set(&e.writing, t); return nil }
func (e *end) SetDeadline(t time.Time) error {
	e.in.set(&e.reading, t)
	e.out.set(&e.writing, t)
	return nil
}
