//go:build cluster

package cluster

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// terminal is a program behind a pseudo-terminal.
type terminal struct {
	t      *testing.T
	cmd    *exec.Cmd
	master *os.File
	ended  chan struct{}

	mu   sync.Mutex
	said strings.Builder
}

// openTerminal starts a program on a terminal of its own of a size.
func openTerminal(t *testing.T, cmd *exec.Cmd, rows, columns uint16) *terminal {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { master.Close() })
	fd := int(master.Fd())
	number, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0)
	}
	if err == nil {
		err = unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Row: rows, Col: columns})
	}
	if err != nil {
		t.Fatalf("make a pseudo-terminal: %v", err)
	}
	slave, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = slave, slave, slave
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setsid: true, Setctty: true}
	term := &terminal{t: t, cmd: cmd, master: master, ended: make(chan struct{})}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	slave.Close()
	go term.read()
	return term
}

func (term *terminal) read() {
	defer close(term.ended)
	buf := make([]byte, 4096)
	for {
		n, err := term.master.Read(buf)
		term.mu.Lock()
		term.said.Write(buf[:n])
		term.mu.Unlock()
		if err != nil {
			return // EIO once the last process has closed the other side
		}
	}
}

// text is all that the program has shown.
func (term *terminal) text() string {
	term.mu.Lock()
	defer term.mu.Unlock()
	return term.said.String()
}

// waits until the terminal shows a text.
func (term *terminal) shows(want string) {
	term.t.Helper()
	for end := time.Now().Add(patience); !strings.Contains(term.text(), want); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(end) {
			term.t.Fatalf("the terminal does not show %q but %q", want, term.text())
		}
	}
}

// types what a person types.
func (term *terminal) types(text string) {
	term.t.Helper()
	if _, err := term.master.WriteString(text); err != nil {
		term.t.Fatal(err)
	}
}

// resize gives the terminal another size.
func (term *terminal) resize(rows, columns uint16) {
	term.t.Helper()
	if err := unix.IoctlSetWinsize(int(term.master.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: rows, Col: columns}); err != nil {
		term.t.Fatal(err)
	}
}

// code waits for the program's end.
func (term *terminal) code() int {
	term.t.Helper()
	_ = term.cmd.Wait() // the code tells
	<-term.ended
	return term.cmd.ProcessState.ExitCode()
}
