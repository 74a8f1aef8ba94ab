package streaming

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

// Buffer sizes of a session. An idle session has two small buffers. After a read that
// fills one, a large one is used, which returns to the pool after a read that does not
// fill it. A TLS record has up to 16 KiB.
const (
	smallBuffer = 1 << 10
	largeBuffer = 16 << 10
)

var largeBuffers = sync.Pool{New: func() any { return new([largeBuffer]byte) }}

// lingerTime is how long a client that has received all output may take to close its
// write side, and how long output in flight to it may make no progress. Closing a
// connection with unread data would drop output that is still in flight to the client.
const lingerTime = 30 * time.Second

// session forwards bytes between two connections.
//
//	both directions ── client closes its write side ──► runtime to client, no time limit
//	either ── runtime closes its write side ──► client has 30 s after all output ──► ended
//	any ── error, idle timeout, end() ──► ended
type session struct {
	client, runtime net.Conn
	early           []byte // data that the client has sent before the hijack
	first           []byte // data to send to the client first: the response header

	idle     time.Duration
	begun    time.Time
	last     atomic.Int64 // nanoseconds from begun to the last byte that is not of a ping
	up, down pings        // from the client, and to it
	hold     hold         // writes to the runtime
	upward   sync.WaitGroup

	mu        sync.Mutex
	idling    *time.Timer // nil without an idle timeout
	linger    time.Duration
	lingering *time.Timer // nil until a side has closed its write side
	said      bool        // the runtime has closed its write side
	unsent    int         // bytes in flight to the client at the last check
	ended     bool
}

// takeOver hijacks the client's connection from its HTTP server. On an error it closes
// the runtime's connection.
func takeOver(w http.ResponseWriter, a *answer, idle time.Duration) (*session, error) {
	conn, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		a.conn.Close()
		return nil, fmt.Errorf("hijack client connection: %w", err)
	}
	s := newSession(conn, a.conn, unread(buffered.Reader), append(head(a.header), a.rest...), idle)
	s.up.webSocket, s.down.webSocket = a.webSocket, a.webSocket
	s.up.only(s.early)
	s.down.only(a.rest)
	return s, nil
}

// unread returns a copy of a reader's buffered data.
func unread(r *bufio.Reader) []byte {
	ahead, _ := r.Peek(r.Buffered()) // cannot fail
	return bytes.Clone(ahead)
}

// head returns the response header for the client.
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
	s := &session{client: client, runtime: runtime, early: early, first: first, idle: idle, linger: lingerTime, begun: time.Now()}
	s.hold.runtime = runtime
	return s
}

// run forwards bytes until the session has ended.
func (s *session) run() {
	s.mu.Lock()
	if s.idle > 0 && !s.ended {
		s.idling = time.AfterFunc(s.idle, s.expire)
	}
	s.mu.Unlock()
	early, first := s.early, s.first
	s.early, s.first = nil, nil
	s.upward.Go(func() { s.sendUp(early) })
	s.sendDown(first)
	s.upward.Wait()
	s.end()
}

// sendUp forwards the data of the client to the runtime.
func (s *session) sendUp(early []byte) {
	readErr, writeErr := s.pump(s.client, early, &s.up, nil, s.hold.write)
	switch {
	case writeErr != nil: // the client still receives the runtime's remaining output
		s.lingers(false)
		s.discard()
	case !errors.Is(readErr, io.EOF):
		s.end()
	default:
		s.hold.drop()
		if !endWrites(s.runtime) {
			s.end()
		}
	}
}

// discard discards the data of the client until it closes its write side or the
// session ends: closing the connection earlier would drop output in flight to the
// client.
func (s *session) discard() {
	buf := make([]byte, smallBuffer)
	for {
		if _, err := s.client.Read(buf); err != nil {
			return
		}
	}
}

// sendDown forwards the data of the runtime to the client. It cannot distinguish a
// runtime that crashed from the end of the output.
func (s *session) sendDown(first []byte) {
	write := func(b []byte, _ bool) error {
		_, err := s.client.Write(b)
		return err
	}
	if _, writeErr := s.pump(s.runtime, first, &s.down, s.flush, write); writeErr != nil || !endWrites(s.client) {
		s.end()
		return
	}
	s.lingers(true)
}

// flush sends the buffered pings to the runtime if they are due. It does not block,
// because the reading goroutine must not wait for a write.
func (s *session) flush() {
	if s.hold.due() {
		s.upward.Go(s.hold.flush)
	}
}

// pump calls write for first and then for the data of src, until a read or a write
// fails; at the end of src, readErr is io.EOF. before is called before each read and
// may be nil. ping reports whether b has only bytes of pings.
func (s *session) pump(src net.Conn, first []byte, p *pings, before func(), write func(b []byte, ping bool) error) (readErr, writeErr error) {
	if len(first) > 0 {
		if err := write(first, false); err != nil {
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
		if before != nil {
			before()
		}
		n, err := src.Read(buf)
		if n > 0 {
			idle := p.only(buf[:n])
			s.touch(idle)
			if err := write(buf[:n], idle); err != nil {
				return nil, err
			}
			s.touch(idle)
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

// touch records the time of a transfer. idle transfers, which are pings, do not count.
func (s *session) touch(idle bool) {
	if !idle {
		s.last.Store(int64(time.Since(s.begun)))
	}
}

// expire ends the session if its idle timeout is over; otherwise it resets the timer.
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

// lingers starts the timer that ends the session after linger. said means that the
// runtime has closed its write side.
func (s *session) lingers(said bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.said = s.said || said
	if !s.ended && s.lingering == nil {
		s.unsent = unsent(s.client)
		s.lingering = time.AfterFunc(s.linger, s.lingered)
	}
}

// lingered ends the session unless output still reaches the client: on a slow link,
// sending the kernel's buffer takes longer than linger.
func (s *session) lingered() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		return
	}
	left := unsent(s.client)
	moved := left < s.unsent || !s.said && time.Since(s.begun)-time.Duration(s.last.Load()) < s.linger
	if s.unsent = left; moved {
		s.lingering.Reset(s.linger)
		return
	}
	s.close()
}

// end closes both connections, which makes run return. It does not block and may be
// called repeatedly.
func (s *session) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.ended {
		s.close()
	}
}

// close is end with the lock held. It closes the TCP connection below TLS, because TLS
// would wait up to 5 s to send its closing alert to a client that does not read. In a
// regular session the alert was already sent by CloseWrite.
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

// endWrites closes the write side of a connection. It reports false if that failed or
// is not supported.
func endWrites(conn net.Conn) bool {
	half, ok := conn.(interface{ CloseWrite() error })
	return ok && half.CloseWrite() == nil
}
