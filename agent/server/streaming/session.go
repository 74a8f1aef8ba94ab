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

// Memory of a session: an idle one holds two small buffers. What fills one is
// followed by a read into a large one, which goes back at once when a read
// leaves some of it empty. A TLS record has up to 16 KiB.
const (
	smallBuffer = 1 << 10
	largeBuffer = 16 << 10
)

var largeBuffers = sync.Pool{New: func() any { return new([largeBuffer]byte) }}

// lingerTime is how long a client may take to end its side once it has all that
// the runtime had to say, and how long nothing of that may reach it. To close a
// connection on which something was not read would lose output that is still
// under way to the client.
const lingerTime = 30 * time.Second

// session is two connections whose bytes are passed on.
//
//	both ways ── client ends its side ──► runtime to client, as long as it takes
//	either ── runtime ends its side ──► the client gets all, then has 30 s to end its own ──► ended
//	any ── a side fails, idle, end() ──► ended
type session struct {
	client, runtime net.Conn
	early           []byte // what the client has sent already
	first           []byte // what the client gets first: the runtime's head

	idle     time.Duration
	begun    time.Time
	last     atomic.Int64 // nanoseconds from begun to the last byte that is not of a ping
	up, down pings        // from the client, and to it
	hold     hold         // of what goes to the runtime
	upward   sync.WaitGroup

	mu        sync.Mutex
	idling    *time.Timer // nil where nothing ends an idle session
	linger    time.Duration
	lingering *time.Timer // nil until a side has ended
	said      bool        // the runtime has ended its side
	unsent    int         // bytes that were on the way to the client when it was last looked
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
	s := newSession(conn, a.conn, unread(buffered.Reader), append(head(a.header), a.rest...), idle)
	s.up.webSocket, s.down.webSocket = a.webSocket, a.webSocket
	s.up.only(s.early)
	s.down.only(a.rest)
	return s, nil
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
	s := &session{client: client, runtime: runtime, early: early, first: first, idle: idle, linger: lingerTime, begun: time.Now()}
	s.hold.runtime = runtime
	return s
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
	s.upward.Go(func() { s.sendUp(early) })
	s.sendDown(first)
	s.upward.Wait()
	s.end()
}

// sendUp passes on what the client sends.
func (s *session) sendUp(early []byte) {
	readErr, writeErr := s.pump(s.client, early, &s.up, nil, s.hold.write)
	switch {
	case writeErr != nil: // what the runtime has said last is still wanted
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

// discard reads what the client says that nobody hears, until it ends its side
// or the session has ended: a connection that is closed before drops what is
// still under way to the client.
func (s *session) discard() {
	buf := make([]byte, smallBuffer)
	for {
		if _, err := s.client.Read(buf); err != nil {
			return
		}
	}
}

// sendDown passes on what the runtime sends. A runtime that dies and one that
// is done look the same.
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

// flush sends on what is held for the runtime if its time has come. It does not
// block: who reads must not wait for one that writes.
func (s *session) flush() {
	if s.hold.due() {
		s.upward.Go(s.hold.flush)
	}
}

// pump passes bytes on, first those that it is given, until a side fails; the
// end of src is io.EOF. before is called before each read unless it is nil,
// and write is told whether b is of nothing but pings.
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

// touch notes that something moved, unless that was idle.
func (s *session) touch(idle bool) {
	if !idle {
		s.last.Store(int64(time.Since(s.begun)))
	}
}

// expire ends the session unless something moved meanwhile.
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

// lingers ends the session in a while; said is that the runtime has ended its
// side.
func (s *session) lingers(said bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.said = s.said || said
	if !s.ended && s.lingering == nil {
		s.unsent = unsent(s.client)
		s.lingering = time.AfterFunc(s.linger, s.lingered)
	}
}

// lingered ends the session unless something still reaches the client: on a
// slow link what the kernel holds for it takes longer.
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
