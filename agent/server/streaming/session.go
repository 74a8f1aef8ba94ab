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

// drainTimeout is how long a client that has received all output may take to close its
// write side, and how long output in flight to it may make no progress. Closing a
// connection that has unread data of the client would drop output that is still in flight
// to it.
const drainTimeout = 30 * time.Second

// session forwards bytes between two connections.
//
//	both directions ── client closes its write side ──► runtime to client, no time limit
//	either ── runtime closes its write side ──► client has 30 s after all output ──► ended
//	any ── error, idle timeout, end() ──► ended
type session struct {
	client, runtime net.Conn
	early           []byte // data that the client has sent before the hijack
	first           []byte // data to send to the client first: the response header

	idle       time.Duration
	begun      time.Time
	last       atomic.Int64 // nanoseconds from begun to the last byte that is not of a ping
	up, down   pingParser   // from the client, and to it
	pingBuffer pingBuffer   // writes to the runtime
	upward     sync.WaitGroup

	mu            sync.Mutex
	idling        *time.Timer // nil without an idle timeout
	drainTimeout  time.Duration
	drainTimer    *time.Timer // nil until a side has closed its write side
	runtimeClosed bool        // the runtime has closed its write side
	unacked       int         // bytes in flight to the client at the last check
	ended         bool
}

// hijack hijacks the client's connection from its HTTP server. On an error it closes
// the runtime's connection.
func hijack(w http.ResponseWriter, a *upgraded, idle time.Duration) (*session, error) {
	conn, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		a.conn.Close()
		return nil, fmt.Errorf("hijack client connection: %w", err)
	}
	s := newSession(conn, a.conn, unread(buffered.Reader), append(head(a.header), a.rest...), idle)
	s.up.webSocket, s.down.webSocket = a.webSocket, a.webSocket
	s.up.onlyPings(s.early)
	s.down.onlyPings(a.rest)
	return s, nil
}

// unread returns a copy of a reader's buffered data.
func unread(r *bufio.Reader) []byte {
	ahead, _ := r.Peek(r.Buffered()) // cannot fail
	return bytes.Clone(ahead)
}

// head returns the response header for the client.
func head(header http.Header) []byte {
	out := bytes.NewBufferString("HTTP/1.1 101 Switching Protocols\r\n")
	_ = header.Write(out) // a buffer returns no error
	out.WriteString("\r\n")
	return out.Bytes()
}

func newSession(client, runtime net.Conn, early, first []byte, idle time.Duration) *session {
	s := &session{client: client, runtime: runtime, early: early, first: first, idle: idle, drainTimeout: drainTimeout, begun: time.Now()}
	s.pingBuffer.runtime = runtime
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
	readErr, writeErr := s.pump(s.client, early, &s.up, nil, s.pingBuffer.write)
	switch {
	case writeErr != nil: // the client still receives the runtime's remaining output
		s.startDrain(false)
		s.discard()
	case !errors.Is(readErr, io.EOF):
		s.end()
	default:
		s.pingBuffer.discard()
		if !closeWrite(s.runtime) {
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
	if _, writeErr := s.pump(s.runtime, first, &s.down, s.flush, write); writeErr != nil || !closeWrite(s.client) {
		s.end()
		return
	}
	s.startDrain(true)
}

// flush sends the buffered pings to the runtime if they are due. It does not block,
// because the reading goroutine must not wait for a write.
func (s *session) flush() {
	if s.pingBuffer.ready() {
		s.upward.Go(s.pingBuffer.flush)
	}
}

// pump calls write for first and then for the data of src, until a read or a write
// fails; at the end of src, readErr is io.EOF. before is called before each read and
// may be nil. ping reports whether b has only bytes of pings.
func (s *session) pump(src net.Conn, first []byte, p *pingParser, before func(), write func(b []byte, ping bool) error) (readErr, writeErr error) {
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
			idle := p.onlyPings(buf[:n])
			s.recordActivity(idle)
			if err := write(buf[:n], idle); err != nil {
				return nil, err
			}
			s.recordActivity(idle)
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

// recordActivity records the time of a transfer. idle transfers, which are pings, do not count.
func (s *session) recordActivity(idle bool) {
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

// startDrain starts the timer of drainExpired. said means that the runtime has closed its
// write side.
func (s *session) startDrain(said bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.runtimeClosed = s.runtimeClosed || said
	if !s.ended && s.drainTimer == nil {
		s.unacked = unackedBytes(s.client)
		s.drainTimer = time.AfterFunc(s.drainTimeout, s.drainExpired)
	}
}

// drainExpired ends the session if no output has reached the client within drainTimeout.
// Otherwise it starts the timer again: on a slow link, sending the kernel's buffer takes
// longer than drainTimeout.
func (s *session) drainExpired() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		return
	}
	left := unackedBytes(s.client)
	moved := left < s.unacked || !s.runtimeClosed && time.Since(s.begun)-time.Duration(s.last.Load()) < s.drainTimeout
	if s.unacked = left; moved {
		s.drainTimer.Reset(s.drainTimeout)
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
	for _, t := range []*time.Timer{s.idling, s.drainTimer} {
		if t != nil {
			t.Stop()
		}
	}
	s.runtime.Close()
	transport(s.client).Close()
}

// transport returns the connection below TLS.
func transport(conn net.Conn) net.Conn {
	if secured, ok := conn.(interface{ NetConn() net.Conn }); ok {
		return secured.NetConn()
	}
	return conn
}

// closeWrite closes the write side of a connection. It reports false if that failed or
// is not supported.
func closeWrite(conn net.Conn) bool {
	half, ok := conn.(interface{ CloseWrite() error })
	return ok && half.CloseWrite() == nil
}
