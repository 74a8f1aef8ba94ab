package remotecommand

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
)

// maxPongs is how many pings may wait for their answer; more get none.
const maxPongs = 4

// stream is one of the session's.
type stream struct {
	id      uint32
	to      io.Writer // nil: what comes on it is skipped
	name    string
	replied bool
	ended   bool // by the server
}

// session is a connection after its upgrade. The goroutine of run reads it; a
// second one, in write, is the only one that writes; a third reads the input.
type session struct {
	conn net.Conn
	in   *bufio.Reader
	c    *Session
	fail context.CancelCauseFunc
	// begun is called once the server has taken all streams.
	begun      func()
	closeStdin func()

	streams []*stream
	stdin   uint32 // 0 without
	resize  uint32 // 0 without
	told    report
	pongs   chan uint32
}

func newSession(conn net.Conn, in *bufio.Reader, c *Session, fail context.CancelCauseFunc) *session {
	s := &session{conn: conn, in: in, c: c, fail: fail, pongs: make(chan uint32, maxPongs)}
	s.add("error", &s.told)
	if c.Stdin != nil {
		s.stdin = s.add("stdin", nil)
	}
	if c.Stdout != nil {
		s.add("stdout", c.Stdout)
	}
	if c.errors() {
		s.add("stderr", c.Stderr)
	}
	if c.TTY { // a server waits for it, also if there are no sizes
		s.resize = s.add("resize", nil)
	}
	return s
}

// add numbers a stream as a client has to: with odd numbers that grow.
func (s *session) add(name string, to io.Writer) uint32 {
	id := uint32(2*len(s.streams) + 1)
	s.streams = append(s.streams, &stream{id: id, name: name, to: to})
	return id
}

func (s *session) find(id uint32) *stream {
	for _, st := range s.streams {
		if st.id == id {
			return st
		}
	}
	return nil
}

// run opens the streams and reads until the session is over. All that it
// started is done then. There is always an error, which tells why it is over.
func (s *session) run(ctx context.Context) (err error) {
	for i, st := range s.streams {
		if _, err := s.conn.Write(synStream(st.id, st.name, i == 0)); err != nil {
			break // what the server has said before it went is read
		}
	}
	var others sync.WaitGroup
	defer others.Wait()
	defer func() {
		s.fail(err) // ends the others, and leaves an earlier cause
		s.conn.Close()
		s.closeStdin()
	}()
	started := false
	for !s.over() {
		switch err := s.read(); {
		case errors.Is(err, errGone):
			return ErrBroken
		case err != nil:
			return err
		}
		// What is sent on a stream before the server has taken it may be lost.
		if !started && s.taken() {
			started = true
			s.begun()
			s.start(ctx, &others)
		}
	}
	return ErrBroken // unless there is a status, as usual
}

// taken says that the server has all streams.
func (s *session) taken() bool {
	for _, st := range s.streams {
		if !st.replied {
			return false
		}
	}
	return true
}

// over says that nothing that is waited for can come any more.
func (s *session) over() bool {
	for _, st := range s.streams {
		if st.to != nil && !st.ended {
			return false
		}
	}
	return true
}

// errGone says that the server has ended the connection, as it does when all
// is said.
var errGone = errors.New("the server is gone")

// read does what one frame wants.
func (s *session) read() error {
	f, err := readFrame(s.in)
	if err != nil {
		return s.torn(err)
	}
	if !f.control {
		return s.data(f)
	}
	switch st := s.find(f.stream); f.kind {
	case frameSynReply:
		if st != nil {
			st.replied, st.ended = true, st.ended || f.fin
		}
	case frameRstStream:
		if st != nil && !st.replied {
			return &Failed{Text: fmt.Sprintf("the runtime refuses the session's stream %s", st.name)}
		}
		if st != nil {
			st.ended = true
		}
	case framePing:
		if f.stream%2 == 0 { // the server's own
			select {
			case s.pongs <- f.stream:
			default:
			}
		}
	case frameGoAway:
		return errGone
	}
	return s.torn(pass(s.in, nil, f.left))
}

func (s *session) data(f frame) error {
	st, to := s.find(f.stream), io.Writer(nil)
	if st != nil && !st.ended {
		to = st.to
	}
	if err := s.torn(pass(s.in, to, f.left)); err != nil {
		return err
	}
	if st != nil && f.fin {
		st.ended = true
	}
	return nil
}

// torn tells the end of a connection, also one within a frame, from what is no
// end.
func (s *session) torn(err error) error {
	if err == nil {
		return nil
	}
	var w writeError
	var n net.Error
	switch {
	case errors.Is(err, errVersion), errors.Is(err, errLongStatus):
		return err
	case errors.As(err, &w):
		return fmt.Errorf("write the command's output: %w", w.error)
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.As(err, &n):
		return errGone
	}
	return err
}

// start begins to write.
func (s *session) start(ctx context.Context, others *sync.WaitGroup) {
	var chunks chan []byte
	written := make(chan struct{})
	if s.stdin != 0 {
		chunks = make(chan []byte)
		others.Go(func() { s.feed(ctx, chunks, written) })
	}
	others.Go(func() { s.write(ctx, chunks, written) })
}

// feed reads the input; an empty chunk is its end. A chunk is not used any
// more when it was written.
func (s *session) feed(ctx context.Context, chunks chan<- []byte, written <-chan struct{}) {
	buf := make([]byte, bufferSize)
	for {
		n, err := s.c.Stdin.Read(buf[frameHead:])
		if n > 0 || err == io.EOF {
			if !give(ctx, chunks, written, buf[:frameHead+n]) {
				return
			}
		}
		switch {
		case err == io.EOF && n > 0:
			give(ctx, chunks, written, buf[:frameHead])
			return
		case err == io.EOF:
			return
		case err != nil:
			s.fail(fmt.Errorf("read the command's input: %w", err))
			return
		}
	}
}

func give(ctx context.Context, chunks chan<- []byte, written <-chan struct{}, b []byte) bool {
	select {
	case chunks <- b:
	case <-ctx.Done():
		return false
	}
	select {
	case <-written:
		return true
	case <-ctx.Done():
		return false
	}
}

// write writes until the session is over, or the server reads no more: what
// that says last is still wanted, and ends the session.
func (s *session) write(ctx context.Context, chunks <-chan []byte, written chan<- struct{}) {
	sizes := s.c.Sizes
	if s.resize == 0 {
		sizes = nil
	}
	for {
		var frame []byte
		chunk := false
		select {
		case <-ctx.Done():
			return
		case id := <-s.pongs:
			frame = pong(id)
		case size, ok := <-sizes:
			if !ok {
				sizes = nil
				continue
			}
			text, _ := json.Marshal(size) // two numbers
			frame = dataFrame(append(make([]byte, frameHead), text...), s.resize, false)
		case b := <-chunks:
			chunk, frame = true, dataFrame(b, s.stdin, len(b) == frameHead)
		}
		if _, err := s.conn.Write(frame); err != nil {
			return
		}
		if chunk {
			select {
			case written <- struct{}{}:
			case <-ctx.Done():
				return
			}
		}
	}
}
