package cli

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"sync"
	"syscall"

	"golang.org/x/term"

	"github.com/tinylet/tinylet/agent/server/remotecommand"
)

func isTerminal(f *os.File) bool { return f != nil && term.IsTerminal(int(f.Fd())) }

// terminal is the one that a command in a container is seen on. It tells its
// sizes, and is as it was before when it is closed, or its context or the
// program ends by a signal.
type terminal struct {
	fd int
	// sizes has the newest size that was not taken, the first one at once.
	sizes chan remotecommand.Size
	quit  chan struct{}
	done  chan struct{}

	mu    sync.Mutex
	old   *term.State // nil while nothing is to be restored
	ended bool
}

// openTerminal begins to tell sizes. interrupt is called when a signal wants
// the program to end that its context does not hear of.
func openTerminal(ctx context.Context, f *os.File, interrupt func()) *terminal {
	t := &terminal{fd: int(f.Fd()), sizes: make(chan remotecommand.Size, 1), quit: make(chan struct{}), done: make(chan struct{})}
	resized, ends := make(chan os.Signal, 1), make(chan os.Signal, 1)
	signal.Notify(resized, syscall.SIGWINCH)
	// SIGPIPE too: a write fails then, in place of ending the program at once.
	signal.Notify(ends, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGPIPE)
	t.tell()
	go func() {
		defer close(t.done)
		defer signal.Stop(ends)
		defer signal.Stop(resized)
		left := ctx.Done()
		for {
			select {
			case <-resized:
				t.tell()
			case <-ends:
				interrupt()
			case <-left: // a command that does not end must not keep it raw
				t.restore()
				left = nil
			case <-t.quit:
				return
			}
		}
	}()
	return t
}

// tell puts the newest size in the place of one that was not taken.
func (t *terminal) tell() {
	width, height, err := term.GetSize(t.fd)
	if err != nil {
		return // it has none
	}
	select {
	case <-t.sizes:
	default:
	}
	t.sizes <- remotecommand.Size{Width: uint16(min(width, 1<<16-1)), Height: uint16(min(height, 1<<16-1))}
}

// raw has every key passed on, and nothing of the output changed.
func (t *terminal) raw() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.ended {
		return nil
	}
	old, err := term.MakeRaw(t.fd)
	if err != nil {
		return fmt.Errorf("pass the terminal's keys on: %w", err)
	}
	t.old = old
	return nil
}

// restore undoes raw, for good.
func (t *terminal) restore() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.ended = true
	if t.old != nil {
		_ = term.Restore(t.fd, t.old) // a terminal that is gone
		t.old = nil
	}
}

// close restores the terminal and waits for what openTerminal began.
func (t *terminal) close() {
	t.restore()
	close(t.quit)
	<-t.done
}
