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

	"golang.org/x/sys/unix"
	"golang.org/x/term"
)

// screen draws on a terminal and reads single keys from it. open switches to the
// alternate screen, and close restores the terminal's content and settings.
type screen struct {
	in, out *os.File
	before  unix.Termios
	keys    *stdinReader // of in, closed when the context of readKey ends
}

// newScreen returns nil unless both in and out are terminals.
func newScreen(in io.Reader, out io.Writer) *screen {
	s := &screen{}
	s.in, _ = in.(*os.File)
	s.out, _ = out.(*os.File)
	if !isTerminal(s.in) || !isTerminal(s.out) { // false for nil
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
	if s.keys, err = newStdinReader(s.in); err != nil {
		return err
	}
	s.before = *before
	now := *before
	now.Lflag &^= unix.ICANON | unix.ECHO
	now.Cc[unix.VMIN], now.Cc[unix.VTIME] = 1, 0
	now.Cc[unix.VSUSP], now.Cc[unix.VQUIT] = 0, 0 // _POSIX_VDISABLE
	if err := unix.IoctlSetTermios(int(s.in.Fd()), unix.TCSETS, &now); err != nil {
		s.keys.free()
		return err
	}
	if _, err := io.WriteString(s.out, enterScreen); err != nil {
		return errors.Join(err, s.close())
	}
	return nil
}

// close restores the terminal.
func (s *screen) close() error {
	s.keys.free()
	_, err := io.WriteString(s.out, leaveScreen)
	// TCSETSF discards unread input, which was for this program.
	if reset := unix.IoctlSetTermios(int(s.in.Fd()), unix.TCSETSF, &s.before); reset != nil {
		err = errors.Join(err, fmt.Errorf("restore terminal: %w; run `reset`", reset))
	}
	return err
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
	runes := []rune(line)
	return string(runes[:min(len(runes), columns)])
}

// readKey waits for a key for at most d. It returns 0 if none was pressed. It fails
// with the cause of ctx when ctx ends, or if the terminal no longer exists.
func (s *screen) readKey(ctx context.Context, d time.Duration) (byte, error) {
	stop := context.AfterFunc(ctx, func() { _ = s.keys.Close() })
	defer stop()
	for due := time.Now().Add(d); ; {
		var key [1]byte
		n, err := s.keys.readUntil(key[:], due)
		switch {
		case ctx.Err() != nil:
			return 0, context.Cause(ctx)
		case errors.Is(err, io.EOF):
			return 0, errors.New("terminal was closed")
		case err != nil:
			return 0, errors.Join(errors.New("terminal was closed"), err)
		case n == 0 || key[0] != 0:
			return key[0], nil
		}
	}
}
