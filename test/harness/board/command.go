package board

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"strings"
	"time"

	"github.com/tinylet/tinylet/test/harness/board/wire"
)

// Cmd is a program to run in the board, as root. Nil writers discard.
type Cmd struct {
	Argv   []string
	Env    []string // added to a plain environment
	Dir    string
	Stdin  io.Reader // nil: empty
	Stdout io.Writer
	Stderr io.Writer
}

// Output is what a finished program left. Exit is its exit code, or 128 plus
// the signal that ended it.
type Output struct {
	Stdout, Stderr []byte
	Exit           int
}

// Process is a program under way in the board.
type Process struct {
	done chan struct{}
	exit int
	err  error
}

// Start starts a program. When ctx ends the program's process group is
// killed. The caller must call Wait.
func (vm *VM) Start(ctx context.Context, c Cmd) (*Process, error) {
	said := func(err error) error { return fmt.Errorf("run %q in the board: %w", c.Argv, err) }
	id, answers, err := vm.control.open(ctx, wire.Exec, wire.Command{Argv: c.Argv, Env: c.Env, Dir: c.Dir})
	if err != nil {
		return nil, said(err)
	}
	p := &Process{done: make(chan struct{})}
	inner, cancel := context.WithCancelCause(ctx)
	go func() {
		// Not waited for: a read of input that the caller gave may block for ever.
		if err := vm.control.feed(inner, id, c.Stdin); err != nil {
			cancel(err) // without effect after the program's end
		}
	}()
	go func() {
		defer close(p.done)
		defer cancel(nil)
		res, err := vm.control.finish(inner, id, answers, orDiscard(c.Stdout), orDiscard(c.Stderr))
		p.exit = res.Exit
		if err != nil {
			p.err = said(err)
		}
	}()
	return p, nil
}

// Wait blocks for the program's end and returns its exit code. The error is
// not nil if the program could not be run to its end.
func (p *Process) Wait() (int, error) {
	<-p.done
	return p.exit, p.err
}

// runTime bounds the time of a program whose output is collected. A board that hangs fails
// its test while the test can still print the board's logs.
const runTime = 15 * time.Minute

var errNotEnded = errors.New("the program did not end")

// Run runs a program for up to runTime and collects its output. An exit code that is not 0
// is no error.
func (vm *VM) Run(ctx context.Context, argv ...string) (Output, error) {
	return vm.RunCmd(ctx, Cmd{Argv: argv})
}

// RunCmd is Run with all choices of Cmd; output goes to the writers of c, if
// it has them, and else into the result.
func (vm *VM) RunCmd(ctx context.Context, c Cmd) (Output, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, runTime, fmt.Errorf("%w within %v", errNotEnded, runTime))
	defer cancel()
	var stdout, stderr bytes.Buffer
	if c.Stdout == nil {
		c.Stdout = &stdout
	}
	if c.Stderr == nil {
		c.Stderr = &stderr
	}
	p, err := vm.Start(ctx, c)
	if err != nil {
		return Output{}, err
	}
	exit, err := p.Wait()
	return Output{Stdout: stdout.Bytes(), Stderr: stderr.Bytes(), Exit: exit}, err
}

// Must runs a program that has to exit with 0 and returns its standard output
// without the white space around it.
func (vm *VM) Must(ctx context.Context, argv ...string) (string, error) {
	out, err := vm.Run(ctx, argv...)
	if err != nil {
		return "", err
	}
	if out.Exit != 0 {
		return "", fmt.Errorf("run %q in the board: exit code %d: %s", argv, out.Exit, tail(string(out.Stderr)+string(out.Stdout), 2000))
	}
	return strings.TrimSpace(string(out.Stdout)), nil
}

// Shell runs a script as Must does.
func (vm *VM) Shell(ctx context.Context, script string) (string, error) {
	return vm.Must(ctx, "sh", "-c", script)
}

// Put writes a file in the board. It appears whole or not at all; its folder
// is made if needed. A read from r that blocks is not interrupted when ctx
// ends: r may be read once more after Put has returned.
func (vm *VM) Put(ctx context.Context, path string, r io.Reader, mode fs.FileMode) error {
	said := func(err error) error { return fmt.Errorf("put %s into the board: %w", path, err) }
	id, answers, err := vm.control.open(ctx, wire.Put, wire.File{Path: path, Mode: uint32(mode.Perm())})
	if err != nil {
		return said(err)
	}
	inner, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() {
		if err := vm.control.feed(inner, id, r); err != nil {
			cancel(err) // without effect after the end
		}
	}()
	if _, err = vm.control.finish(inner, id, answers, io.Discard, io.Discard); err != nil {
		return said(err)
	}
	return nil
}

// Get reads a file of the board.
func (vm *VM) Get(ctx context.Context, path string) ([]byte, error) {
	said := func(err error) error { return fmt.Errorf("get %s from the board: %w", path, err) }
	id, answers, err := vm.control.open(ctx, wire.Get, wire.File{Path: path})
	if err != nil {
		return nil, said(err)
	}
	var b bytes.Buffer
	if _, err := vm.control.finish(ctx, id, answers, &b, io.Discard); err != nil {
		return nil, said(err)
	}
	return b.Bytes(), nil
}

// Relay connects conn to a Unix socket of the board until the socket's peer
// closes or ctx ends; then it closes conn.
func (vm *VM) Relay(ctx context.Context, socket string, conn net.Conn) error {
	said := func(err error) error { return fmt.Errorf("connect to %s of the board: %w", socket, err) }
	defer conn.Close()
	id, answers, err := vm.control.open(ctx, wire.Dial, wire.File{Path: socket})
	if err != nil {
		return said(err)
	}
	inner, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() { _ = vm.control.feed(inner, id, conn) }() // ends with conn
	if _, err := vm.control.finish(inner, id, answers, conn, io.Discard); err != nil {
		return said(err)
	}
	return nil
}

func orDiscard(w io.Writer) io.Writer {
	if w == nil {
		return io.Discard
	}
	return w
}

// TinyletFiles are the files that put a tinylet binary of the host into a
// board: the binary itself and its link as kubelet.
func TinyletFiles(binary string) []File {
	return []File{
		{Path: "/usr/bin/tinylet", Mode: 0o755, Source: binary},
		{Path: "/usr/bin/kubelet", Link: "tinylet"},
	}
}
