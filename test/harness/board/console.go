package board

import (
	"errors"
	"io"
	"net"
	"sync"
	"syscall"
)

// consoleTail is how many of the last bytes on the console are remembered.
const consoleTail = 64 << 10

// console reads a board's serial console.
type console struct {
	log tailBuffer

	mu   sync.Mutex
	out  io.Writer
	conn io.Writer
}

func newConsole(out io.Writer) *console { return &console{out: orDiscard(out)} }

func (c *console) run(conn io.ReadWriteCloser) {
	c.mu.Lock()
	c.conn = conn
	c.mu.Unlock()
	buf := make([]byte, 4096)
	for {
		n, err := conn.Read(buf)
		if n > 0 {
			_, _ = c.log.Write(buf[:n])
			c.mu.Lock()
			out := c.out
			c.mu.Unlock()
			_, _ = out.Write(buf[:n]) // the board runs on without its reader
		}
		if err != nil {
			return
		}
	}
}

// show sends what the board prints to out instead, until back is called.
func (c *console) show(out io.Writer) (back func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	before := c.out
	c.out = out
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.out = before
	}
}

// typed sends what in has to the board until in ends or the board does.
func (c *console) typed(in io.Reader) error {
	c.mu.Lock()
	conn := c.conn
	c.mu.Unlock()
	if conn == nil {
		return ErrGone
	}
	_, err := io.Copy(conn, in)
	if errors.Is(err, syscall.EPIPE) || errors.Is(err, net.ErrClosed) || errors.Is(err, io.ErrClosedPipe) {
		return nil
	}
	return err
}

// ConsoleLog returns the last 64 KiB that the board printed on its console.
func (vm *VM) ConsoleLog() string { return vm.console.log.String() }

// AttachConsole sends what in has to the board's console and what the board
// prints to out, until in ends or the board does. A read from in that blocks
// is not interrupted: AttachConsole returns after it. For a person at a
// terminal there is Interact.
func (vm *VM) AttachConsole(in io.Reader, out io.Writer) error {
	defer vm.console.show(out)()
	return vm.console.typed(in)
}

// tailBuffer keeps the last bytes written to it.
type tailBuffer struct {
	mu sync.Mutex
	b  []byte
}

func (t *tailBuffer) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.b = append(t.b, p...)
	if over := len(t.b) - consoleTail; over > 0 {
		t.b = append(t.b[:0], t.b[over:]...)
	}
	return len(p), nil
}

func (t *tailBuffer) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(t.b)
}

// dieWithParent lets the kernel kill QEMU when this process is killed.
func dieWithParent() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
}
