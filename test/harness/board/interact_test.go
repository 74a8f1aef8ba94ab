package board

import (
	"bytes"
	"context"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// pty opens a terminal and its other side.
func pty(t *testing.T) (person, terminal *os.File) {
	t.Helper()
	person, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = person.Close() })
	if err := unix.IoctlSetPointerInt(int(person.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	n, err := unix.IoctlGetInt(int(person.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	terminal, err = os.OpenFile("/dev/pts/"+strconv.Itoa(n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = terminal.Close() })
	return person, terminal
}

// fakeBoard has a console that this test is the other side of.
func fakeBoard(t *testing.T) (vm *VM, serial net.Conn) {
	t.Helper()
	host, serial := net.Pipe()
	vm = &VM{control: newControl(), console: newConsole(nil), ended: make(chan struct{})}
	vm.control.fail(ErrGone) // no control program
	var wg sync.WaitGroup
	wg.Go(func() { vm.console.run(host) })
	t.Cleanup(func() {
		_ = serial.Close()
		wg.Wait()
	})
	for {
		vm.console.mu.Lock()
		ready := vm.console.conn != nil
		vm.console.mu.Unlock()
		if ready {
			return vm, serial
		}
		time.Sleep(time.Millisecond)
	}
}

func readFull(t *testing.T, r io.Reader, want string) {
	t.Helper()
	b := make([]byte, len(want))
	if _, err := io.ReadFull(r, b); err != nil || string(b) != want {
		t.Fatalf("read %q, %v, want %q", b, err, want)
	}
}

type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *syncBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *syncBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

func TestInteract(t *testing.T) {
	tests := []struct {
		name string
		end  func(t *testing.T, vm *VM, person *os.File, serial net.Conn, cancel func())
	}{
		{"escape key", func(t *testing.T, _ *VM, person *os.File, serial net.Conn, _ func()) {
			if _, err := person.WriteString("last\x1dnot sent"); err != nil {
				t.Fatal(err)
			}
			readFull(t, serial, "last")
		}},
		{"board ends", func(_ *testing.T, vm *VM, _ *os.File, _ net.Conn, _ func()) { close(vm.ended) }},
		{"context ends", func(_ *testing.T, _ *VM, _ *os.File, _ net.Conn, cancel func()) { cancel() }},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			person, terminal := pty(t)
			before, err := unix.IoctlGetTermios(int(terminal.Fd()), unix.TCGETS)
			if err != nil {
				t.Fatal(err)
			}
			vm, serial := fakeBoard(t)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			out := &syncBuffer{}
			done := make(chan error, 1)
			go func() { done <- interact(ctx, vm, terminal, out) }()
			readFull(t, serial, "\r") // it asks for a prompt
			if _, err := person.WriteString("ls\x03\x04\r"); err != nil {
				t.Fatal(err)
			}
			readFull(t, serial, "ls\x03\x04\r") // no key has a meaning here
			if _, err := serial.Write([]byte("board# ")); err != nil {
				t.Fatal(err)
			}
			for !strings.Contains(out.String(), "board# ") {
				time.Sleep(time.Millisecond)
			}
			tt.end(t, vm, person, serial, cancel)
			if err := <-done; err != nil {
				t.Error(err)
			}
			after, err := unix.IoctlGetTermios(int(terminal.Fd()), unix.TCGETS)
			if err != nil {
				t.Fatal(err)
			}
			if *after != *before {
				t.Errorf("terminal is %+v, was %+v", *after, *before)
			}
			if !strings.Contains(out.String(), "Ctrl-]") {
				t.Errorf("output %q does not tell how to leave", out.String())
			}
		})
	}
}

func TestInteractWithoutTerminal(t *testing.T) {
	vm, serial := fakeBoard(t)
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	done := make(chan error, 1)
	out := &syncBuffer{}
	go func() { done <- interact(t.Context(), vm, r, out) }()
	if _, err := w.WriteString("a\x1db"); err != nil {
		t.Fatal(err)
	}
	readFull(t, serial, "\ra\x1db")
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := serial.Write([]byte("still here")); err != nil {
		t.Fatal(err)
	}
	for out.String() != "still here" {
		time.Sleep(time.Millisecond)
	}
	close(vm.ended)
	if err := <-done; err != nil {
		t.Error(err)
	}
}
