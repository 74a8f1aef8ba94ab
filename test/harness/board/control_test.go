package board

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tinylet/tinylet/test/harness/board/guest"
	"github.com/tinylet/tinylet/test/harness/board/wire"
)

// pair returns the host's end of a stream whose other end the control program
// serves on this machine, and the function that cuts it.
func pair(t *testing.T) (_ *VM, cut func()) {
	t.Helper()
	host, board := net.Pipe()
	vm := &VM{control: newControl()}
	var wg sync.WaitGroup
	wg.Go(func() { vm.control.run(host) })
	wg.Go(func() { _ = guest.Serve(board) }) // always ends with the stream's error
	t.Cleanup(func() {
		_ = board.Close()
		wg.Wait()
	})
	select {
	case <-vm.control.hello:
	case <-time.After(time.Minute):
		t.Fatal("no greeting")
	}
	return vm, func() { _ = board.Close() }
}

func TestCommands(t *testing.T) {
	vm, _ := pair(t)
	dir := t.TempDir()
	tests := []struct {
		name string
		cmd  Cmd
		want Output
		err  bool
	}{
		{"output", Cmd{Argv: []string{"sh", "-c", "echo out; echo err >&2"}}, Output{Stdout: []byte("out\n"), Stderr: []byte("err\n")}, false},
		{"exit code", Cmd{Argv: []string{"sh", "-c", "exit 7"}}, Output{Exit: 7}, false},
		{"signal", Cmd{Argv: []string{"sh", "-c", "kill -9 $$"}}, Output{Exit: 137}, false},
		{"input", Cmd{Argv: []string{"cat"}, Stdin: strings.NewReader("in")}, Output{Stdout: []byte("in")}, false},
		{"input left unread", Cmd{Argv: []string{"true"}, Stdin: endless{}}, Output{}, false},
		{"environment", Cmd{Argv: []string{"sh", "-c", "echo $A-$HOME"}, Env: []string{"A=b"}}, Output{Stdout: []byte("b-/root\n")}, false},
		{"folder", Cmd{Argv: []string{"pwd"}, Dir: dir}, Output{Stdout: []byte(dir + "\n")}, false},
		{"child that keeps the output", Cmd{Argv: []string{"sh", "-c", "sleep 60 & echo $!"}}, Output{}, false},
		{"no such program", Cmd{Argv: []string{filepath.Join(dir, "none")}}, Output{}, true},
		{"no program", Cmd{}, Output{}, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := vm.RunCmd(t.Context(), tt.cmd)
			if (err != nil) != tt.err {
				t.Fatalf("error %v", err)
			}
			if strings.HasPrefix(tt.name, "child") {
				if _, err := vm.Must(t.Context(), "kill", strings.TrimSpace(string(got.Stdout))); err != nil {
					t.Errorf("the child is gone: %v", err)
				}
				return
			}
			if d := cmp.Diff(tt.want, got, cmp.Transformer("text", func(b []byte) string { return string(b) })); d != "" {
				t.Error(d)
			}
		})
	}
	if _, err := vm.Must(t.Context(), "sh", "-c", "echo why >&2; exit 3"); err == nil || !strings.Contains(err.Error(), "exit code 3: why") {
		t.Errorf("error %v does not tell why", err)
	}
}

// endless is input without an end.
type endless struct{}

func (endless) Read(p []byte) (int, error) { return len(p), nil }

func TestOutputIsWhole(t *testing.T) {
	vm, _ := pair(t)
	const size = 3 << 20
	w := &slowWriter{}
	out, err := vm.RunCmd(t.Context(), Cmd{Argv: []string{"head", "-c", fmt.Sprint(size), "/dev/zero"}, Stdout: w})
	if err != nil || out.Exit != 0 || w.n != size {
		t.Errorf("%d of %d bytes: exit %d: %v", w.n, size, out.Exit, err)
	}
}

type slowWriter struct{ n int }

func (w *slowWriter) Write(p []byte) (int, error) {
	w.n += len(p)
	time.Sleep(5 * time.Millisecond)
	return len(p), nil
}

// TestRelay has each connection reach the socket, both ways, until one end
// closes it.
func TestRelay(t *testing.T) {
	vm, _ := pair(t)
	socket := filepath.Join(t.TempDir(), "socket")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				_, _ = io.CopyN(conn, conn, 3<<20)
			}()
		}
	}()
	var wg sync.WaitGroup
	for range 5 {
		wg.Go(func() {
			near, far := net.Pipe()
			wg.Go(func() {
				if err := vm.Relay(t.Context(), socket, far); err != nil {
					t.Errorf("relay: %v", err)
				}
			})
			sent := strings.Repeat("x", 3<<20)
			wg.Go(func() { _, _ = io.WriteString(near, sent) })
			if got, err := io.ReadAll(near); err != nil || string(got) != sent {
				t.Errorf("%d bytes came back: %v", len(got), err)
			}
		})
	}
	wg.Wait()

	ctx, cancel := context.WithCancel(t.Context())
	near, far := net.Pipe()
	wg.Go(func() {
		if err := vm.Relay(ctx, socket, far); !errors.Is(err, context.Canceled) {
			t.Errorf("cancelled: %v", err)
		}
	})
	if _, err := io.WriteString(near, "some"); err != nil {
		t.Error(err)
	}
	cancel()
	wg.Wait()
	near, far = net.Pipe()
	if err := vm.Relay(t.Context(), socket+"none", far); err == nil || !strings.Contains(err.Error(), "none") {
		t.Errorf("no socket: %v", err)
	}
	if _, err := near.Read(make([]byte, 1)); err == nil {
		t.Error("the connection stays open")
	}
}

func TestManyAtOnce(t *testing.T) {
	vm, _ := pair(t)
	var wg sync.WaitGroup
	for i := range 20 {
		wg.Go(func() {
			in := strings.Repeat(fmt.Sprintf("line %d\n", i), 20000)
			out, err := vm.RunCmd(t.Context(), Cmd{Argv: []string{"cat"}, Stdin: strings.NewReader(in)})
			if err != nil || string(out.Stdout) != in {
				t.Errorf("%d: %d bytes of %d came back: %v", i, len(out.Stdout), len(in), err)
			}
		})
	}
	wg.Wait()
}

func TestCancel(t *testing.T) {
	vm, _ := pair(t)
	why := errors.New("changed my mind")
	tests := []struct {
		name string
		argv []string
	}{
		{"silent", []string{"sh", "-c", "echo $$ > FILE; sleep 100; true"}},
		{"with children", []string{"sh", "-c", "echo $$ > FILE; (sleep 100; true) | cat"}},
		{"without end", []string{"sh", "-c", "echo $$ > FILE; while :; do echo noise; done"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "pid")
			for i := range tt.argv {
				tt.argv[i] = strings.ReplaceAll(tt.argv[i], "FILE", file)
			}
			ctx, cancel := context.WithCancelCause(t.Context())
			p, err := vm.Start(ctx, Cmd{Argv: tt.argv})
			if err != nil {
				t.Fatal(err)
			}
			pid, err := vm.Shell(t.Context(), "until [ -s "+file+" ]; do sleep 0.01; done; cat "+file)
			if err != nil {
				t.Fatal(err)
			}
			cancel(why)
			if _, err := p.Wait(); !errors.Is(err, why) {
				t.Errorf("error %v, want %v", err, why)
			}
			// The process group has the shell's id.
			if _, err := vm.Shell(t.Context(), "while kill -0 -- -"+pid+"; do sleep 0.01; done"); err != nil {
				t.Error(err)
			}
		})
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := vm.Run(ctx, "true"); !errors.Is(err, context.Canceled) {
		t.Errorf("run after the end of its context: %v", err)
	}
}

func TestFiles(t *testing.T) {
	vm, _ := pair(t)
	dir := t.TempDir()
	big := bytes.Repeat([]byte("0123456789abcdef"), 1<<16)
	path := filepath.Join(dir, "a", "b")
	if err := vm.Put(t.Context(), path, bytes.NewReader(big), 0o640); err != nil {
		t.Fatal(err)
	}
	got, err := vm.Get(t.Context(), path)
	if err != nil || !bytes.Equal(got, big) {
		t.Errorf("%d bytes of %d came back: %v", len(got), len(big), err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode() != 0o640 {
		t.Errorf("file %v: %v", info, err)
	}
	for _, name := range []string{"relative", "/", ""} {
		if err := vm.Put(t.Context(), name, strings.NewReader("x"), 0o644); err == nil {
			t.Errorf("path %q was accepted", name)
		}
	}
	if _, err := vm.Get(t.Context(), filepath.Join(dir, "none")); err == nil || !strings.Contains(err.Error(), "no such file") {
		t.Errorf("get of a missing file: %v", err)
	}
	failed := errors.New("input failed")
	err = vm.Put(t.Context(), filepath.Join(dir, "half"), io.MultiReader(strings.NewReader("half"), failing{failed}), 0o644)
	if !errors.Is(err, failed) {
		t.Errorf("put of failing input: %v, want %v", err, failed)
	}
	if _, err := vm.Shell(t.Context(), "while [ \"$(ls -A "+dir+")\" != a ]; do sleep 0.01; done"); err != nil {
		t.Error(err)
	}
}

type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }

func TestLostBoard(t *testing.T) {
	vm, cut := pair(t)
	p, err := vm.Start(t.Context(), Cmd{Argv: []string{"sleep", "100"}})
	if err != nil {
		t.Fatal(err)
	}
	cut()
	if _, err := p.Wait(); !errors.Is(err, ErrGone) {
		t.Errorf("command under way: %v, want %v", err, ErrGone)
	}
	if _, err := vm.Run(t.Context(), "true"); !errors.Is(err, ErrGone) {
		t.Errorf("later command: %v, want %v", err, ErrGone)
	}
	if err := vm.Put(t.Context(), "/x", endless{}, 0o644); !errors.Is(err, ErrGone) {
		t.Errorf("later file: %v, want %v", err, ErrGone)
	}
}

// TestHungBoard has a board that takes nothing: every call ends with its
// context, and a program at the latest after runTime.
func TestHungBoard(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		host, board := net.Pipe()
		vm := &VM{control: newControl()}
		var stream, calls sync.WaitGroup
		stream.Go(func() { vm.control.run(host) })
		ctx, cancel := context.WithCancel(t.Context())
		for range 3 {
			calls.Go(func() {
				if _, err := vm.Run(ctx, "true"); !errors.Is(err, context.Canceled) {
					t.Errorf("run: %v, want %v", err, context.Canceled)
				}
			})
		}
		calls.Go(func() {
			if err := vm.Put(ctx, "/x", endless{}, 0o644); !errors.Is(err, context.Canceled) {
				t.Errorf("put: %v, want %v", err, context.Canceled)
			}
		})
		synctest.Wait()
		cancel()
		calls.Wait()
		if _, err := vm.Run(t.Context(), "true"); !errors.Is(err, errNotEnded) {
			t.Errorf("run without a deadline: %v, want %v", err, errNotEnded)
		}
		_ = board.Close()
		stream.Wait()
	})
}

func TestNoise(t *testing.T) {
	tests := []struct {
		name string
		in   []byte
	}{
		{"no frames", []byte("Linux version 6.12\n")},
		{"bad greeting", append([]byte{'T', 'B', byte(wire.Hello), 0, 0, 0, 0, 0, 0, 0, 0, 1}, '{')},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			host, board := net.Pipe()
			c := newControl()
			var wg sync.WaitGroup
			wg.Go(func() { c.run(host) })
			_, _ = board.Write(tt.in) // the host may have closed it before the end
			wg.Wait()
			if _, _, err := c.open(t.Context(), wire.Get, nil); !errors.Is(err, ErrGone) {
				t.Errorf("error %v, want %v", err, ErrGone)
			}
		})
	}
}
