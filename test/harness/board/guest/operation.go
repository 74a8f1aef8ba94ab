package guest

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"

	"github.com/tinylet/tinylet/test/harness/board/wire"
)

var environment = []string{
	"PATH=/usr/sbin:/usr/bin:/sbin:/bin",
	"HOME=/root",
	"TERM=dumb",
}

var errCancelled = errors.New("cancelled by the host")

// execute runs a program to its end, or kills its process group when the
// operation is cancelled. The exit code is 128 plus the signal if one ended it.
func execute(c wire.Command, o *op, stdout, stderr io.Writer) (int, error) {
	if len(c.Argv) == 0 {
		return 0, errors.New("empty command")
	}
	cmd := exec.Command(c.Argv[0], c.Argv[1:]...)
	cmd.Env = append(append([]string{}, environment...), c.Env...)
	cmd.Dir = c.Dir
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return 0, fmt.Errorf("run %q: %w", c.Argv[0], err)
	}
	outputs, err := start(cmd, stdout, stderr)
	if err != nil {
		_ = stdin.Close()
		return 0, fmt.Errorf("run: %w", err)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		_, _ = io.Copy(stdin, o.input) // a program need not read its input
		_ = stdin.Close()
	})
	for _, d := range outputs {
		wg.Go(d.run)
	}
	done := make(chan struct{})
	wg.Go(func() {
		select {
		case <-o.cancel:
			_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		case <-done:
		}
	})
	err = cmd.Wait()
	close(done)
	o.input.end()
	for _, d := range outputs {
		d.finish()
	}
	wg.Wait()
	return exitCode(cmd.ProcessState, err)
}

// start starts cmd with a pipe for each of its outputs.
func start(cmd *exec.Cmd, stdout, stderr io.Writer) (_ []*drain, err error) {
	var opened []*os.File
	defer func() {
		for i, f := range opened {
			if err != nil || i%2 == 1 { // the program has the writing ends
				_ = f.Close()
			}
		}
	}()
	var drains []*drain
	for _, to := range []io.Writer{stdout, stderr} {
		r, w, err := os.Pipe()
		if err != nil {
			return nil, err
		}
		opened = append(opened, r, w)
		drains = append(drains, &drain{from: r, to: to})
	}
	cmd.Stdout, cmd.Stderr = opened[1], opened[3]
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	return drains, nil
}

func exitCode(ps *os.ProcessState, err error) (int, error) {
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		return 0, err
	}
	if ws, ok := ps.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
		return 128 + int(ws.Signal()), nil
	}
	return ps.ExitCode(), nil
}

// put writes the operation's input next to the requested path and renames it, so
// that a program that watches the folder sees the whole file at once.
func put(f wire.File, o *op) (err error) {
	dir, base := filepath.Split(filepath.Clean(f.Path))
	if !filepath.IsAbs(f.Path) || base == "" {
		return fmt.Errorf("put %q: not an absolute file path", f.Path)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("put %s: %w", f.Path, err)
	}
	tmp, err := os.CreateTemp(dir, ".put-*")
	if err != nil {
		return fmt.Errorf("put %s: %w", f.Path, err)
	}
	defer func() {
		if err != nil {
			_ = os.Remove(tmp.Name())
		}
	}()
	_, err = io.Copy(tmp, o.input)
	if err == nil {
		err = tmp.Chmod(os.FileMode(f.Mode & 0o777))
	}
	if cerr := tmp.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		select {
		case <-o.cancel:
			err = errCancelled
		default:
			err = os.Rename(tmp.Name(), filepath.Clean(f.Path))
		}
	}
	if err != nil {
		return fmt.Errorf("put %s: %w", f.Path, err)
	}
	return nil
}

// get sends a file's content. Its error is the operating system's text.
func get(f wire.File, o *op, out io.Writer) error {
	file, err := os.Open(f.Path)
	if err != nil {
		return err
	}
	defer file.Close()
	buf := make([]byte, wire.MaxPayload)
	for {
		select {
		case <-o.cancel:
			return errCancelled
		default:
		}
		n, err := file.Read(buf)
		if n > 0 {
			if _, werr := out.Write(buf[:n]); werr != nil {
				return werr
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// dial connects to a Unix socket, writes the operation's input to it and sends
// what comes back, until the peer closes.
func dial(f wire.File, o *op, out io.Writer) error {
	conn, err := net.DialUnix("unix", nil, &net.UnixAddr{Net: "unix", Name: f.Path})
	if err != nil {
		return err
	}
	defer conn.Close()
	done := make(chan struct{})
	defer close(done)
	go func() {
		select {
		case <-o.cancel:
			_ = conn.Close()
		case <-done:
		}
	}()
	go func() { // ends with the input, which the operation's end ends
		_, _ = io.Copy(conn, o.input)
		_ = conn.CloseWrite()
	}()
	defer o.input.end()
	_, err = io.Copy(out, conn)
	return err
}
