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

// maxPongs limits the pings that wait for a reply; further ones get none.
const maxPongs = 4

// stream is a stream of a session.
type stream struct {
	id      uint32
	to      io.Writer // nil discards received data
	name    string
	replied bool
	ended   bool // by the server
}

// session is a connection after its upgrade. The goroutine of run reads from it; a
// second one, in write, is the only writer; a third reads the input.
type session struct {
	conn net.Conn
	in   *bufio.Reader
	c    *Session
	fail context.CancelCauseFunc
	// onStart is called when the server has accepted all streams.
	onStart    func()
	closeStdin func()

	streams    []*stream
	stdin      uint32 // stream ID; 0 if there is none
	resize     uint32 // stream ID; 0 if there is none
	statusText statusBuffer
	pongs      chan uint32
}

func newSession(conn net.Conn, in *bufio.Reader, c *Session, fail context.CancelCauseFunc) *session {
	s := &session{conn: conn, in: in, c: c, fail: fail, pongs: make(chan uint32, maxPongs)}
	s.add("error", &s.statusText)
	if c.Stdin != nil {
		s.stdin = s.add("stdin", nil)
	}
	if c.Stdout != nil {
		s.add("stdout", c.Stdout)
	}
	if c.errors() {
		s.add("stderr", c.Stderr)
	}
	if c.TTY { // servers require the stream, even if there are no sizes
		s.resize = s.add("resize", nil)
	}
	return s
}

// add adds a stream and returns its ID. The IDs of a client are odd and increasing.
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

// run opens the streams and reads until the session is over. Before it returns, it
// waits for the goroutines that it has started. It always returns an error, with the
// cause of the end.
func (s *session) run(ctx context.Context) (err error) {
	for i, st := range s.streams {
		if _, err := s.conn.Write(synStream(st.id, st.name, i == 0)); err != nil {
			break // the data that the server has already sent is still read
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
		case errors.Is(err, errClosed):
			return ErrNoStatus
		case err != nil:
			return err
		}
		// Data sent on a stream before the server has accepted it may be lost.
		if !started && s.accepted() {
			started = true
			s.onStart()
			s.start(ctx, &others)
		}
	}
	return ErrNoStatus // ignored if there is a status, which is the normal case
}

// accepted reports whether the server has accepted all streams.
func (s *session) accepted() bool {
	for _, st := range s.streams {
		if !st.replied {
			return false
		}
	}
	return true
}

// over reports whether the server has ended all streams that it sends on.
func (s *session) over() bool {
	for _, st := range s.streams {
		if st.to != nil && !st.ended {
			return false
		}
	}
	return true
}

// errClosed means that the server has closed the connection, as it does at the end of a
// session.
var errClosed = errors.New("server has closed the connection")

// read reads and handles one frame.
func (s *session) read() error {
	f, err := readFrame(s.in)
	if err != nil {
		return s.connectionError(err)
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
			return &CommandError{Text: fmt.Sprintf("runtime rejected stream %s", st.name)}
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
		return errClosed
	}
	return s.connectionError(pass(s.in, nil, f.left))
}

func (s *session) data(f frame) error {
	st, to := s.find(f.stream), io.Writer(nil)
	if st != nil && !st.ended {
		to = st.to
	}
	if err := s.connectionError(pass(s.in, to, f.left)); err != nil {
		return err
	}
	if st != nil && f.fin {
		st.ended = true
	}
	return nil
}

// connectionError returns errGone for the end of a connection, also within a frame. It wraps the
// errors of writers, and returns other errors unchanged.
func (s *session) connectionError(err error) error {
	if err == nil {
		return nil
	}
	var w writeError
	var n net.Error
	switch {
	case errors.Is(err, errVersion), errors.Is(err, errLongStatus):
		return err
	case errors.As(err, &w):
		return fmt.Errorf("write command output: %w", w.error)
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.As(err, &n):
		return errClosed
	}
	return err
}

// start starts the goroutines that write to the server and read the input.
func (s *session) start(ctx context.Context, others *sync.WaitGroup) {
	var chunks chan []byte
	written := make(chan struct{})
	if s.stdin != 0 {
		chunks = make(chan []byte)
		others.Go(func() { s.readInput(ctx, chunks, written) })
	}
	others.Go(func() { s.write(ctx, chunks, written) })
}

// readInput reads the input and sends it to write in chunks; an empty chunk is its end. A
// chunk is reused after it was written.
func (s *session) readInput(ctx context.Context, chunks chan<- []byte, written <-chan struct{}) {
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
			s.fail(fmt.Errorf("read command input: %w", err))
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

// write writes frames until the session is over or a write fails. A write error does
// not end the session: run still reads the server's remaining data.
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
