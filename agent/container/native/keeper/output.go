package keeper

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// readSize is the most bytes that are read of a stream before the next one's turn.
	readSize = 16 << 10
	// flushSize is the size of formatted entries at which they are written.
	flushSize = 32 << 10
)

// stream is one output of a container: a FIFO, or the master of its terminal.
type stream struct {
	c  *container
	fd int

	// mu guards the fields below. It is held during reads and writes of the stream.
	mu      sync.Mutex
	entries entries
	closed  bool
	tees    []tee
}

// tee is a descriptor of a client that gets a copy of the output.
type tee struct {
	fd   int
	lost uint64 // bytes since the last write that the client did not read in time
}

// maxTees bounds the clients of one stream.
const maxTees = 16

// outputs reads the output of all containers. One goroutine runs it: many would each need a
// stack.
type outputs struct {
	epoll int

	// busy is held while outputs are processed.
	busy sync.Mutex

	mu      sync.Mutex
	streams map[int32]*stream
	last    int32

	in, out []byte
}

func newOutputs() (*outputs, error) {
	epoll, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("create epoll: %w", err)
	}
	return &outputs{epoll: epoll, streams: map[int32]*stream{}, in: make([]byte, readSize)}, nil
}

// add begins to read a stream.
func (o *outputs) add(s *stream) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	for o.last++; o.last <= 0 || o.streams[o.last] != nil; o.last++ {
		if o.last < 0 {
			o.last = 0
		}
	}
	o.streams[o.last] = s
	// The event has the number of the stream and not the descriptor, which another stream
	// may have by the time the event is handled.
	err := unix.EpollCtl(o.epoll, unix.EPOLL_CTL_ADD, s.fd, &unix.EpollEvent{Events: unix.EPOLLIN, Fd: o.last})
	if err != nil {
		delete(o.streams, o.last)
		return fmt.Errorf("watch output: %w", err)
	}
	return nil
}

// run reads until the epoll descriptor is closed.
func (o *outputs) run() error {
	events := make([]unix.EpollEvent, 32)
	for {
		n, err := unix.EpollWait(o.epoll, events, -1)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return fmt.Errorf("wait for output: %w", err)
		}
		o.busy.Lock()
		for _, event := range events[:n] {
			o.mu.Lock()
			s := o.streams[event.Fd]
			o.mu.Unlock()
			if s != nil && !o.read(s) {
				o.mu.Lock()
				delete(o.streams, event.Fd)
				o.mu.Unlock()
			}
		}
		if cap(o.out) > flushSize+2*maxLine {
			o.out = nil
		}
		o.busy.Unlock()
	}
}

// read reads a stream once. It returns false at the end of the stream.
func (o *outputs) read(s *stream) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	n, err := unix.Read(s.fd, o.in)
	switch {
	case errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EINTR):
		return true
	case n <= 0: // EIO is the end of a terminal
		s.finish()
		return false
	}
	s.copy(o.in[:n])
	o.out = s.entries.format(o.out[:0], o.in[:n], time.Now(), s.c.log.write)
	s.c.log.write(o.out)
	return true
}

// finish ends a stream: it writes the last line and closes all descriptors. The caller holds
// the lock.
func (s *stream) finish() {
	if s.closed {
		return
	}
	s.closed = true
	s.c.log.write(s.entries.end(nil, time.Now()))
	_ = unix.Close(s.fd) // also ends its epoll
	for _, t := range s.tees {
		_ = unix.Close(t.fd)
	}
	s.tees = nil
	s.c.streamEnded()
}

// end ends a stream whose output is not waited for any longer.
func (s *stream) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.finish()
}

// copy writes data to the clients. One that does not read in time loses data, and gets a
// notice of it before the next bytes. One that is gone is removed.
func (s *stream) copy(data []byte) {
	for i := 0; i < len(s.tees); {
		t := &s.tees[i]
		if t.write(data) {
			i++
			continue
		}
		_ = unix.Close(t.fd)
		s.tees = append(s.tees[:i], s.tees[i+1:]...)
	}
}

// write returns false if the client is gone.
func (t *tee) write(data []byte) bool {
	if t.lost > 0 {
		note := fmt.Sprintf("\r\n[%d bytes of output lost: the client read too slowly]\r\n", t.lost)
		n, err := writeAll(t.fd, []byte(note))
		if errors.Is(err, unix.EAGAIN) && n == 0 {
			t.lost += uint64(len(data))
			return true
		}
		t.lost = 0
	}
	n, err := writeAll(t.fd, data)
	if errors.Is(err, unix.EAGAIN) {
		t.lost += uint64(len(data) - n)
		return true
	}
	return err == nil
}

// attach adds a client's descriptor, which the stream owns from then on, also after an error.
func (s *stream) attach(fd int) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		_ = unix.Close(fd)
		return fmt.Errorf("%w: its output has ended", ErrNotRunning)
	}
	s.prune()
	if len(s.tees) >= maxTees {
		_ = unix.Close(fd)
		return fmt.Errorf("%w: %d clients are attached", ErrBusy, maxTees)
	}
	if err := unix.SetNonblock(fd, true); err != nil {
		_ = unix.Close(fd)
		return fmt.Errorf("attach: %w", err)
	}
	s.tees = append(s.tees, tee{fd: fd})
	return nil
}

// prune removes clients that are gone: without output nothing else notices it.
func (s *stream) prune() {
	for i := 0; i < len(s.tees); {
		poll := []unix.PollFd{{Fd: int32(s.tees[i].fd)}}
		if n, err := unix.Poll(poll, 0); err != nil || n == 0 || poll[0].Revents&(unix.POLLERR|unix.POLLHUP|unix.POLLNVAL) == 0 {
			i++
			continue
		}
		_ = unix.Close(s.tees[i].fd)
		s.tees = append(s.tees[:i], s.tees[i+1:]...)
	}
}
