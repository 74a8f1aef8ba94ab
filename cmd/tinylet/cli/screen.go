package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"
	"unicode/utf8"

	"golang.org/x/sys/unix"
	"golang.org/x/term"
)

// screen draws on a terminal and reads single keys from it. open switches to the
// alternate screen, and close restores the terminal's content and settings.
type screen struct {
	in, out *os.File
	before  unix.Termios
	wake    [2]int // a pipe that unblocks readKey when its context ends
}

// newScreen returns nil unless both in and out are terminals.
func newScreen(in io.Reader, out io.Writer) *screen {
	s := &screen{}
	var ok bool
	if s.in, ok = in.(*os.File); !ok {
		return nil
	}
	if s.out, ok = out.(*os.File); !ok {
		return nil
	}
	if !isTerminal(s.in) || !isTerminal(s.out) {
		return nil
	}
	return s
}

// Control sequences (ECMA-48, and xterm's alternate screen).
const (
	enterScreen = "\x1b[?1049h\x1b[?25l\x1b[2J"
	leaveScreen = "\x1b[?25h\x1b[?1049l"
	home        = "\x1b[H"
	clearLine   = "\x1b[K"
	clearBelow  = "\x1b[J"
)

// open sets the terminal up. Ctrl-C still sends SIGINT. Ctrl-Z and Ctrl-\ are
// disabled, because they would stop or end the program without restoring the terminal.
func (s *screen) open() error {
	before, err := unix.IoctlGetTermios(int(s.in.Fd()), unix.TCGETS)
	if err != nil {
		return err
	}
	if err := unix.Pipe2(s.wake[:], unix.O_CLOEXEC|unix.O_NONBLOCK); err != nil {
		return err
	}
	s.before = *before
	now := *before
	now.Lflag &^= unix.ICANON | unix.ECHO
	now.Cc[unix.VMIN], now.Cc[unix.VTIME] = 1, 0
	now.Cc[unix.VSUSP], now.Cc[unix.VQUIT] = 0, 0 // _POSIX_VDISABLE
	if err := unix.IoctlSetTermios(int(s.in.Fd()), unix.TCSETS, &now); err != nil {
		s.closePipe()
		return err
	}
	if _, err := io.WriteString(s.out, enterScreen); err != nil {
		return errors.Join(err, s.close())
	}
	return nil
}

// close restores the terminal.
func (s *screen) close() error {
	s.closePipe()
	_, err := io.WriteString(s.out, leaveScreen)
	// TCSETSF discards unread input, which was for this program.
	if reset := unix.IoctlSetTermios(int(s.in.Fd()), unix.TCSETSF, &s.before); reset != nil {
		err = errors.Join(err, fmt.Errorf("restore terminal: %w; run `reset`", reset))
	}
	return err
}

func (s *screen) closePipe() {
	_, _ = unix.Close(s.wake[0]), unix.Close(s.wake[1]) // nothing is buffered
}

// draw displays the output of write, cut to the size of the terminal.
func (s *screen) draw(write func(io.Writer) error) error {
	columns, rows, err := term.GetSize(int(s.out.Fd()))
	if err != nil || rows == 0 || columns == 0 {
		columns, rows = 80, 24
	}
	var text bytes.Buffer
	if err := write(&text); err != nil {
		return err
	}
	_, err = io.WriteString(s.out, frame(text.String(), rows, columns))
	return err
}

// frame returns the control sequences that display text, cut to the given size. The
// last line counts the missing lines.
func frame(text string, rows, columns int) string {
	lines := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
	if len(lines) > rows {
		more := len(lines) - rows + 1
		lines = append(lines[:rows-1:rows-1], fmt.Sprintf("... and %d more lines", more))
	}
	var b strings.Builder
	b.WriteString(home)
	for i, line := range lines {
		b.WriteString(truncate(line, columns))
		b.WriteString(clearLine)
		if i < len(lines)-1 {
			b.WriteString("\r\n")
		}
	}
	b.WriteString(clearBelow)
	return b.String()
}

func truncate(line string, columns int) string {
	if utf8.RuneCountInString(line) <= columns {
		return line
	}
	return string([]rune(line)[:columns])
}

// readKey waits for a key for at most d. It returns 0 if none was pressed. It fails
// with the cause of ctx when ctx ends, or if the terminal no longer exists.
func (s *screen) readKey(ctx context.Context, d time.Duration) (byte, error) {
	written := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(written)
		_, _ = unix.Write(s.wake[1], []byte{0}) // EAGAIN from a full pipe: it is readable
	})
	defer func() {
		if !stop() {
			<-written // before the pipe is closed
		}
	}()
	for due := time.Now().Add(d); ; {
		fds := []unix.PollFd{{Fd: int32(s.in.Fd()), Events: unix.POLLIN}, {Fd: int32(s.wake[0]), Events: unix.POLLIN}}
		n, err := unix.Poll(fds, int(max(time.Until(due), 0)/time.Millisecond))
		switch {
		case ctx.Err() != nil:
			return 0, context.Cause(ctx)
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil:
			return 0, fmt.Errorf("wait for key: %w", err)
		case n == 0:
			return 0, nil
		}
		var key [1]byte
		if n, err := unix.Read(int(s.in.Fd()), key[:]); err != nil || n == 0 {
			if errors.Is(err, unix.EINTR) || errors.Is(err, unix.EAGAIN) {
				continue
			}
			return 0, errors.Join(errors.New("terminal was closed"), err)
		}
		if key[0] != 0 {
			return key[0], nil
		}
	}
}
