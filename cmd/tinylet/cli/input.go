package cli

import (
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// input reads a file that may be a terminal or a pipe at which nobody writes:
// what reads from it waits for its end, too. Reads block a thread.
type input struct {
	fd         int
	wake, ends *os.File // a pipe; nothing is written to it
}

// newInput makes one of a file, which stays the caller's. free must follow.
func newInput(f *os.File) (*input, error) {
	if f == nil {
		return nil, errors.New("there is no standard input")
	}
	r, w, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("read the standard input: %w", err)
	}
	return &input{fd: int(f.Fd()), wake: r, ends: w}, nil
}

// Read is that of io.Reader. After Close it fails with os.ErrClosed.
func (in *input) Read(b []byte) (int, error) {
	if len(b) == 0 {
		return 0, nil
	}
	for {
		watch := []unix.PollFd{{Fd: int32(in.wake.Fd()), Events: unix.POLLIN}, {Fd: int32(in.fd), Events: unix.POLLIN}}
		if _, err := unix.Poll(watch, -1); err != nil {
			if errors.Is(err, unix.EINTR) {
				continue
			}
			return 0, err
		}
		if watch[0].Revents != 0 {
			return 0, os.ErrClosed
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

// Close ends a Read that waits, and all later ones.
func (in *input) Close() error { return in.ends.Close() }

// free gives back what newInput took. Nobody may read any more.
func (in *input) free() {
	_ = in.ends.Close() // nothing was written; it may be closed already
	_ = in.wake.Close()
}
