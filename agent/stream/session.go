package stream

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// Memory of a session: an idle one holds two small buffers. What fills one is
// followed by a read into a large one, which goes back at once when a read
// leaves some of it empty. A TLS record has up to 16 KiB.
const (
	smallBuffer = 1 << 10
	largeBuffer = 16 << 10
)

var largeBuffers = sync.Pool{New: func() any { return new([largeBuffer]byte) }}

// lingerTime is how long a client may take to end its side once the runtime has
// ended its own. To close a connection on which something was not read would
// lose output that is still under way to the client.
const lingerTime = 30 * time.Second

// session is two connections whose bytes are passed on.
//
//	both ways ── client ends its side ──► runtime to client, as long as it takes
//	either ── runtime ends its side ──► up to 30 s for the client's end ──► ended
//	any ── a side fails, idle, end() ──► ended
type session struct {
	client, runtime net.Conn
	early           []byte // what the client has sent already
	first           []byte // what the client gets first: the runtime's head

	idle  time.Duration
	begun time.Time
	last  atomic.Int64 // nanoseconds from begun to the last byte

	mu        sync.Mutex
	idling    *time.Timer // nil where nothing ends an idle session
	lingering *time.Timer // nil until a side has ended
	ended     bool
}

// takeOver takes the client's connection from its HTTP server. The runtime's
// connection is closed on an error.
func takeOver(w http.ResponseWriter, a *answer, idle time.Duration) (*session, error) {
	conn, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		a.conn.Close()
		return nil, fmt.Errorf("take over the client's connection: %w", err)
	}
	return newSession(conn, a.conn, unread(buffered.Reader), append(head(a.header), a.rest...), idle), nil
}

// unread is a copy of what a reader has read ahead.
func unread(r *bufio.Reader) []byte {
	ahead, _ := r.Peek(r.Buffered()) // as much is there
	return bytes.Clone(ahead)
}

// head is the answer that the client gets.
func head(header http.Header) []byte {
	out := []byte("HTTP/1.1 101 Switching Protocols\r\n")
	for name, values := range header {
		for _, value := range values {
			out = fmt.Appendf(out, "%s: %s\r\n", name, value)
		}
	}
	return append(out, "\r\n"...)
}

func newSession(client, runtime net.Conn, early, first []byte, idle time.Duration) *session {
	return &session{client: client, runtime: runtime, early: early, first: first, idle: idle, begun: time.Now()}
}

// run passes bytes on until the session has ended.
func (s *session) run() {
	s.mu.Lock()
	if s.idle > 0 && !s.ended {
		s.idling = time.AfterFunc(s.idle, s.expire)
	}
	s.mu.Unlock()
	early, first := s.early, s.first
	s.early, s.first = nil, nil
	var up sync.WaitGroup
	up.Go(func() { s.up(early) })
	s.down(first)
	up.Wait()
	s.end()
}

// up passes on what the client sends.
func (s *session) up(early []byte) {
	readErr, writeErr := s.pump(s.runtime, s.client, early)
	switch {
	case writeErr != nil: // what the runtime has said last is still wanted
		s.linger()
	case !errors.Is(readErr, io.EOF) || !endWrites(s.runtime):
		s.end()
	}
}

// down passes on what the runtime sends. A runtime that dies and one that is
// done look the same.
func (s *session) down(first []byte) {
	if _, writeErr := s.pump(s.client, s.runtime, first); writeErr != nil || !endWrites(s.client) {
		s.end()
		return
	}
	s.linger()
}

// pump passes bytes on, first those that it is given, until a side fails;
// the end of src is io.EOF.
func (s *session) pump(dst, src net.Conn, first []byte) (readErr, writeErr error) {
	if len(first) > 0 {
		if _, err := dst.Write(first); err != nil {
			return nil, err
		}
	}
	small := make([]byte, smallBuffer)
	buf, large := small, (*[largeBuffer]byte)(nil)
	defer func() {
		if large != nil {
			largeBuffers.Put(large)
		}
	}()
	for {
		n, err := src.Read(buf)
		if n > 0 {
			s.touch()
			if _, err := dst.Write(buf[:n]); err != nil {
				return nil, err
			}
			s.touch()
		}
		if err != nil {
			return err, nil
		}
		switch full := n == len(buf); {
		case full && large == nil:
			large = largeBuffers.Get().(*[largeBuffer]byte)
			buf = large[:]
		case !full && large != nil:
			largeBuffers.Put(large)
			buf, large = small, nil
		}
	}
}

func (s *session) touch() { s.last.Store(int64(time.Since(s.begun))) }

// expire ends the session unless there was a byte meanwhile.
func (s *session) expire() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		return
	}
	if left := s.idle - (time.Since(s.begun) - time.Duration(s.last.Load())); left > 0 {
		s.idling.Reset(left)
		return
	}
	s.close()
}

// linger ends the session in a while.
func (s *session) linger() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.ended && s.lingering == nil {
		s.lingering = time.AfterFunc(lingerTime, s.end)
	}
}

// end closes both connections; run returns soon. It does not block and may be
// called again.
func (s *session) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.ended {
		s.close()
	}
}

// close is end with the lock held. TLS would wait up to 5 s to say farewell to
// a client that does not read; whose session ends in order has had it with
// the end of our writes.
func (s *session) close() {
	s.ended = true
	for _, t := range []*time.Timer{s.idling, s.lingering} {
		if t != nil {
			t.Stop()
		}
	}
	s.runtime.Close()
	if secured, ok := s.client.(interface{ NetConn() net.Conn }); ok {
		secured.NetConn().Close()
		return
	}
	s.client.Close()
}

// endWrites ends the writing side of a connection; false if it cannot be
// ended alone.
func endWrites(conn net.Conn) bool {
	half, ok := conn.(interface{ CloseWrite() error })
	return ok && half.CloseWrite() == nil
}
