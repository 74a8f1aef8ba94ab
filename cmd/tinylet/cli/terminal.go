package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
	"golang.org/x/term"

	"github.com/tinylet/tinylet/agent/server/remotecommand"
)

func isTerminal(f *os.File) bool { return f != nil && term.IsTerminal(int(f.Fd())) }

// terminal is the local terminal of a command in a container. It reports its size,
// and it restores its settings when it is closed, when its context ends, or when a
// signal ends the program.
type terminal struct {
	fd int
	// sizes has the newest size that was not received yet. It has the first size
	// immediately.
	sizes chan remotecommand.Size
	quit  chan struct{}
	done  chan struct{}

	mu    sync.Mutex
	old   *term.State // nil if there is nothing to restore
	ended bool
}

// openTerminal starts to report the size of f. It calls interrupt at a signal that
// terminates programs and does not end ctx. The caller must call close.
func openTerminal(ctx context.Context, f *os.File, interrupt func()) *terminal {
	t := &terminal{fd: int(f.Fd()), sizes: make(chan remotecommand.Size, 1), quit: make(chan struct{}), done: make(chan struct{})}
	resized, interrupted := make(chan os.Signal, 1), make(chan os.Signal, 1)
	signal.Notify(resized, syscall.SIGWINCH)
	// With SIGPIPE, a write fails in place of terminating the program at once.
	signal.Notify(interrupted, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGPIPE)
	t.sendSize()
	go func() {
		defer close(t.done)
		defer signal.Stop(interrupted)
		defer signal.Stop(resized)
		ended := ctx.Done()
		for {
			select {
			case <-resized:
				t.sendSize()
			case <-interrupted:
				interrupt()
			case <-ended: // even if the command in the container does not end
				t.restore()
				ended = nil
			case <-t.quit:
				return
			}
		}
	}()
	return t
}

// sendSize replaces a size that was not received yet with the current one.
func (t *terminal) sendSize() {
	width, height, err := term.GetSize(t.fd)
	if err != nil {
		return // it has no size
	}
	select {
	case <-t.sizes:
	default:
	}
	t.sizes <- remotecommand.Size{Width: uint16(min(width, 1<<16-1)), Height: uint16(min(height, 1<<16-1))}
}

// raw sets raw mode: each key is passed to the command, and its output is not
// changed. It does nothing after restore.
func (t *terminal) raw() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.ended {
		return nil
	}
	old, err := term.MakeRaw(t.fd)
	if err != nil {
		return fmt.Errorf("set raw mode of terminal: %w", err)
	}
	t.old = old
	return nil
}

// restore restores the settings from before raw. Later calls of raw have no effect.
func (t *terminal) restore() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.ended = true
	if t.old != nil {
		_ = term.Restore(t.fd, t.old) // it fails if the terminal no longer exists
		t.old = nil
	}
}

// close restores the terminal and waits for the goroutine of openTerminal.
func (t *terminal) close() {
	t.restore()
	close(t.quit)
	<-t.done
}

// stdinReader reads a file that may be a terminal or a pipe. Close unblocks a Read
// that waits for data. A blocked Read occupies an operating system thread.
type stdinReader struct {
	fd              int
	closed, closing *os.File // a pipe to which nothing is written
}

// newStdinReader returns a reader of f, which it does not close. The caller must call
// free.
func newStdinReader(f *os.File) (*stdinReader, error) {
	if f == nil {
		return nil, errors.New("read standard input: it is not open")
	}
	r, w, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("read standard input: %w", err)
	}
	return &stdinReader{fd: int(f.Fd()), closed: r, closing: w}, nil
}

// Read implements io.Reader. After Close it returns os.ErrClosed.
func (in *stdinReader) Read(b []byte) (int, error) {
	if len(b) == 0 {
		return 0, nil
	}
	return in.readUntil(b, time.Time{})
}

// maxPollTimeout is the longest timeout of poll(2), which has a C int of milliseconds.
const maxPollTimeout = math.MaxInt32

// pollTimeout returns d in milliseconds, from 0 to maxPollTimeout.
func pollTimeout(d time.Duration) int {
	return int(min(max(d/time.Millisecond, 0), maxPollTimeout))
}

// readUntil is Read, which returns 0 bytes and no error if there are none until due.
// The zero time never comes.
func (in *stdinReader) readUntil(b []byte, due time.Time) (int, error) {
	for {
		timeout := -1
		if !due.IsZero() {
			timeout = pollTimeout(time.Until(due))
		}
		fds := []unix.PollFd{{Fd: int32(in.closed.Fd()), Events: unix.POLLIN}, {Fd: int32(in.fd), Events: unix.POLLIN}}
		ready, err := unix.Poll(fds, timeout)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil:
			return 0, err
		case fds[0].Revents != 0:
			return 0, os.ErrClosed
		case ready == 0 && timeout == maxPollTimeout:
			continue // due may be later
		case ready == 0:
			return 0, nil
		}
		n, err := unix.Read(in.fd, b)
		switch {
		case errors.Is(err, unix.EINTR), errors.Is(err, unix.EAGAIN):
			continue
		case err != nil:
			return 0, err
		case n == 0:
			return 0, io.EOF
		}
		return n, nil
	}
}

// Close ends a blocked Read and makes all later ones fail.
func (in *stdinReader) Close() error { return in.closing.Close() }

// free releases the pipe. It must be called after the last Read.
func (in *stdinReader) free() {
	_ = in.closing.Close() // it may be closed already
	_ = in.closed.Close()
}
