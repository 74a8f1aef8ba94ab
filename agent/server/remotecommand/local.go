package remotecommand

import (
	"context"
	"errors"
	"io"
	"sync"

	"k8s.io/client-go/tools/remotecommand"
)

// localStreams returns the caller's streams for the client. Their errors, which the client
// would ignore, end the session. release waits for reads and writes in progress. Later ones
// fail, because the client may still have goroutines when it has returned.
func localStreams(ctx context.Context, c *Session, fail context.CancelCauseFunc) (o remotecommand.StreamOptions, release func()) {
	var all []*local
	add := func(s *local) *local {
		s.fail = fail
		all = append(all, s)
		return s
	}
	o.Tty = c.TTY
	if c.Stdin != nil {
		o.Stdin = add(&local{what: "read command input", r: c.Stdin})
	}
	if c.Stdout != nil {
		o.Stdout = add(&local{what: "write command output", w: c.Stdout})
	}
	if c.errors() {
		o.Stderr = add(&local{what: "write command output", w: c.Stderr})
	}
	if c.TTY && c.Sizes != nil {
		o.TerminalSizeQueue = &sizeQueue{ctx.Done(), c.Sizes}
	}
	return o, func() {
		for _, s := range all {
			s.mu.Lock()
			s.released = true
			s.mu.Unlock()
		}
	}
}

// local is one of the caller's streams, which is read or written.
type local struct {
	what string
	r    io.Reader
	w    io.Writer
	fail context.CancelCauseFunc

	mu       sync.Mutex
	released bool
}

// localError is an error of one of the caller's streams. It takes precedence over the
// command's status, because data was lost.
type localError struct {
	what  string
	cause error
}

func (e *localError) Error() string { return e.what + ": " + e.cause.Error() }
func (e *localError) Unwrap() error { return e.cause }

// use calls f unless the stream was released.
func (s *local) use(f func([]byte) (int, error), b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.released {
		return 0, io.ErrClosedPipe
	}
	n, err := f(b)
	if err != nil && !errors.Is(err, io.EOF) {
		s.fail(&localError{s.what, err})
	}
	return n, err
}

// Read implements io.Reader.
func (s *local) Read(b []byte) (int, error) { return s.use(s.r.Read, b) }

// Write implements io.Writer.
func (s *local) Write(b []byte) (int, error) { return s.use(s.w.Write, b) }

// sizeQueue implements remotecommand.TerminalSizeQueue.
type sizeQueue struct {
	ended <-chan struct{} // closed when the session has ended
	sizes <-chan Size
}

// Next returns the next size, or nil when the session has ended.
func (q *sizeQueue) Next() *Size {
	select {
	case size, ok := <-q.sizes:
		if !ok {
			return nil
		}
		return &size
	case <-q.ended:
		return nil
	}
}
