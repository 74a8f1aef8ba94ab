package board

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strconv"
	"sync"

	"golang.org/x/sys/unix"
)

// EscapeKey is the key that leaves Interact: Ctrl-], as in telnet.
const EscapeKey = 0x1d

// consoleDevice is the board's end of its console.
const consoleDevice = "/dev/ttyAMA0"

// Interact joins the terminal of this process to the board's console. It
// returns when EscapeKey is typed, the board ends or ctx does. Meanwhile the
// terminal is in raw mode, so that Ctrl-C goes to the board; it is put back
// before Interact returns. ctx should end on the signals that end the program,
// or they leave the terminal raw. If standard input is no terminal it is sent
// as it comes, without an escape key, and its end ends nothing.
func Interact(ctx context.Context, vm *VM) error {
	return interact(ctx, vm, os.Stdin, os.Stdout)
}

func interact(ctx context.Context, vm *VM, in *os.File, out io.Writer) error {
	old, err := unix.IoctlGetTermios(int(in.Fd()), unix.TCGETS)
	terminal := err == nil
	if terminal {
		raw := makeRaw(*old)
		if err := unix.IoctlSetTermios(int(in.Fd()), unix.TCSETS, &raw); err != nil {
			return fmt.Errorf("put the terminal into raw mode: %w", err)
		}
		defer unix.IoctlSetTermios(int(in.Fd()), unix.TCSETS, old)
		fmt.Fprint(out, "the board's console; Ctrl-] leaves it\r\n")
		defer fmt.Fprint(out, "\r\n")
	}
	keys, err := newKeyboard(in, terminal)
	if err != nil {
		return err
	}
	defer keys.close()
	ctx, stop := context.WithCancel(ctx)
	defer context.AfterFunc(ctx, keys.interrupt)()
	var wg sync.WaitGroup
	defer wg.Wait()
	defer stop()
	wg.Go(func() {
		select {
		case <-vm.Ended():
			stop()
		case <-ctx.Done():
		}
	})
	if terminal {
		wg.Go(func() { followSize(ctx, vm, in) })
	}
	defer vm.console.show(out)()
	if err := vm.console.typed(io.MultiReader(bytes.NewReader([]byte{'\r'}), keys)); err != nil {
		return fmt.Errorf("send to the console: %w", err)
	}
	if !terminal {
		<-ctx.Done()
	}
	return nil
}

// makeRaw is what cfmakeraw(3) does.
func makeRaw(t unix.Termios) unix.Termios {
	t.Iflag &^= unix.IGNBRK | unix.BRKINT | unix.PARMRK | unix.ISTRIP | unix.INLCR | unix.IGNCR | unix.ICRNL | unix.IXON
	t.Oflag &^= unix.OPOST
	t.Lflag &^= unix.ECHO | unix.ECHONL | unix.ICANON | unix.ISIG | unix.IEXTEN
	t.Cflag = t.Cflag&^(unix.CSIZE|unix.PARENB) | unix.CS8
	t.Cc[unix.VMIN], t.Cc[unix.VTIME] = 1, 0
	return t
}

// followSize gives the console the terminal's size, now and when it changes.
// A board without its control program goes without.
func followSize(ctx context.Context, vm *VM, tty *os.File) {
	changed := make(chan os.Signal, 1)
	signal.Notify(changed, unix.SIGWINCH)
	defer signal.Stop(changed)
	for {
		if ws, err := unix.IoctlGetWinsize(int(tty.Fd()), unix.TIOCGWINSZ); err == nil && ws.Col > 0 && ws.Row > 0 {
			_, _ = vm.Run(ctx, "stty", "-F", consoleDevice,
				"rows", strconv.Itoa(int(ws.Row)), "cols", strconv.Itoa(int(ws.Col)))
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return
		}
	}
}

// keyboard reads a file and can be interrupted. It ends before EscapeKey if
// escape is set. The file's own mode is left alone, since others have it open.
type keyboard struct {
	in     *os.File
	escape bool
	wakeR  *os.File
	wakeW  *os.File
}

func newKeyboard(in *os.File, escape bool) (*keyboard, error) {
	r, w, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("read the keyboard: %w", err)
	}
	return &keyboard{in: in, escape: escape, wakeR: r, wakeW: w}, nil
}

// interrupt lets a read under way and all later ones return io.EOF.
func (k *keyboard) interrupt() { _, _ = k.wakeW.Write([]byte{0}) }

func (k *keyboard) close() {
	_ = k.wakeR.Close()
	_ = k.wakeW.Close()
}

func (k *keyboard) Read(p []byte) (int, error) {
	fds := []unix.PollFd{
		{Fd: int32(k.in.Fd()), Events: unix.POLLIN},
		{Fd: int32(k.wakeR.Fd()), Events: unix.POLLIN},
	}
	for {
		_, err := unix.Poll(fds, -1)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return 0, fmt.Errorf("read the keyboard: %w", err)
		}
		break
	}
	if fds[1].Revents != 0 {
		return 0, io.EOF
	}
	n, err := k.in.Read(p)
	if k.escape {
		if i := bytes.IndexByte(p[:n], EscapeKey); i >= 0 {
			return i, io.EOF
		}
	}
	return n, err
}
