package oci

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/tinylet/tinylet/agent/store/atomicfile"
)

// outputDelay limits the wait for the rest of the output of a command that has exited: a
// process that it has started may hold the output. containerd waits for 10 s at least
// (drain_exec_sync_io_timeout).
const outputDelay = time.Second

// Size is that of a terminal, in characters.
type Size struct {
	Width  uint16 `json:"width"`
	Height uint16 `json:"height"`
}

// Command is a command to run in a running container.
type Command struct {
	Program   Program
	Container string
	// Process is the JSON document of the process (process in the OCI specification).
	Process []byte
	// Dir is a directory on a tmpfs for the files of commands, with mode 0700.
	Dir string
	Env []string // of the program

	// Stdin may be nil for an empty input. It is read until the command exits or the input
	// ends; a Read may be pending after that. Stdout and Stderr may be nil for outputs that
	// are dropped.
	Stdin          io.Reader
	Stdout, Stderr io.Writer
	// Terminal must equal terminal in Process. There is no Stderr then.
	Terminal bool
	// SendsTerminal is the result of the function SendsTerminal for the program.
	SendsTerminal bool
	// Resize has the sizes of the terminal. It may be nil.
	Resize <-chan Size
}

// Names in the directory of a command.
const (
	commandPrefix    = "exec-"
	commandProcess   = "process.json"
	commandPID       = "pid"
	commandLog       = "log"
	commandContainer = "container"
	commandConsole   = "tty"
)

// Run runs the command, and returns its exit code. It returns ErrFailed if the program
// cannot start the command. When ctx ends, Run kills the command and returns the cause; the
// processes that it has started live on.
func (c *Command) Run(ctx context.Context) (exitCode int32, err error) {
	if err := c.Program.Valid(); err != nil {
		return 0, err
	}
	dir, err := os.MkdirTemp(c.Dir, commandPrefix)
	if err != nil {
		return 0, fmt.Errorf("run command in container %s: %w", c.Container, err)
	}
	defer func() { _ = os.RemoveAll(dir) }() // Sweep removes what is left
	if err := c.sizeProcess(); err != nil {
		return 0, fmt.Errorf("run command in container %s: %w", c.Container, err)
	}
	for name, data := range map[string][]byte{commandContainer: []byte(c.Container), commandProcess: c.Process} {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
			return 0, fmt.Errorf("run command in container %s: %w", c.Container, err)
		}
	}
	code, err := c.run(ctx, dir)
	if err != nil {
		return 0, fmt.Errorf("run command in container %s: %w", c.Container, err)
	}
	return code, nil
}

// sizeProcess puts the first size of the terminal into the process for a program that makes the
// terminal. A command may ask for the size at once.
func (c *Command) sizeProcess() error {
	if !c.Terminal || !c.SendsTerminal {
		return nil
	}
	select {
	case size, ok := <-c.Resize:
		if !ok {
			return nil
		}
		var p map[string]any
		if err := json.Unmarshal(c.Process, &p); err != nil {
			return fmt.Errorf("decode process: %w", err)
		}
		p["consoleSize"] = specs.Box{Width: uint(size.Width), Height: uint(size.Height)}
		var err error
		c.Process, err = json.Marshal(p)
		return err
	default:
		return nil
	}
}

func (c *Command) run(ctx context.Context, dir string) (int32, error) {
	pidFile, logFile := filepath.Join(dir, commandPID), filepath.Join(dir, commandLog)
	connect, consoleSocket := c.pipes, ""
	switch {
	case c.Terminal && c.SendsTerminal:
		console, err := ListenConsole(filepath.Join(dir, commandConsole))
		if err != nil {
			return 0, err
		}
		defer console.Close()
		connect, consoleSocket = c.received(console), console.Path
	case c.Terminal:
		connect = c.terminal
	}
	args := c.Program.Exec(c.Container, filepath.Join(dir, commandProcess), pidFile, logFile, consoleSocket, c.Terminal)
	run := exec.Command(args[0], args[1:]...)
	run.Env, run.Dir, run.WaitDelay = c.Env, "/", outputDelay
	run.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	started, finish, err := connect(run)
	if err != nil {
		return 0, err
	}
	err = run.Start()
	started(err)
	if err != nil {
		return 0, errors.Join(fmt.Errorf("%w: %w", ErrFailed, err), finish())
	}
	waited := make(chan struct{})
	stop := context.AfterFunc(ctx, func() { kill(run.Process.Pid, pidFile, waited) })
	err = run.Wait()
	close(waited)
	ended := !stop()
	// What the command has written to a terminal is there until it is read.
	err = errors.Join(ignoreExit(err), finish())
	if ended {
		if pid, pidErr := ReadPID(pidFile); pidErr == nil {
			killPID(pid) // the program may have started it after the first try
		}
		return 0, context.Cause(ctx)
	}
	if _, pidErr := ReadPID(pidFile); pidErr != nil {
		return 0, fmt.Errorf("%w: %s", ErrFailed, LastMessage(logFile))
	}
	if err != nil {
		return 0, err
	}
	status, _ := run.ProcessState.Sys().(syscall.WaitStatus)
	if status.Signaled() {
		return 128 + int32(status.Signal()), nil
	}
	return int32(status.ExitStatus()), nil
}

// ignoreExit returns err unless it only means that the program exited with a code, or that
// its output was held open.
func ignoreExit(err error) error {
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) || errors.Is(err, exec.ErrWaitDelay) {
		return nil
	}
	return err
}

// killDelay limits the wait for the pid file of a command that is to be killed. A program
// that is killed before it has written it would leave the command running.
const killDelay = 2 * time.Second

// kill kills a command by its pid file, or the program if that does not write one. It
// returns at once when ended is closed: the program has been reaped then.
func kill(program int, pidFile string, ended <-chan struct{}) {
	for begin := time.Now(); time.Since(begin) < killDelay; {
		if pid, err := ReadPID(pidFile); err == nil {
			killPID(pid) // with which the program ends
		}
		select {
		case <-ended:
			return
		case <-time.After(20 * time.Millisecond):
		}
	}
	_ = unix.Kill(-program, unix.SIGKILL) // its session
}

// killPID kills a process of a pid file that was just written.
func killPID(pid int) {
	if p, _, err := FindProcess(pid); err == nil {
		_ = p.Kill()
	}
}

// pipes connects the command's inputs and outputs. started is called with the error of the
// start, finish when the program has ended.
func (c *Command) pipes(run *exec.Cmd) (started func(error), finish func() error, err error) {
	run.Stdout, run.Stderr = c.Stdout, c.Stderr
	if c.Stdin == nil {
		return func(error) {}, func() error { return nil }, nil
	}
	// exec.Cmd.Stdin would make Wait wait for the client's input.
	reader, writer, err := os.Pipe()
	if err != nil {
		return nil, nil, fmt.Errorf("connect input: %w", err)
	}
	run.Stdin = reader
	started = func(err error) {
		_ = reader.Close()
		if err == nil {
			go func() {
				_, _ = io.Copy(writer, c.Stdin) // ends with the input or the command
				_ = writer.Close()
			}()
		}
	}
	return started, func() error { _ = writer.Close(); return nil }, nil
}

// terminal gives the program a terminal.
func (c *Command) terminal(run *exec.Cmd) (started func(error), finish func() error, err error) {
	master, slave, err := openTerminal()
	if err != nil {
		return nil, nil, fmt.Errorf("open terminal: %w", err)
	}
	select {
	case size, ok := <-c.Resize: // a command may ask for the size at once
		if !ok {
			break
		}
		if err := setSize(master, size); err != nil {
			return nil, nil, errors.Join(fmt.Errorf("set size of terminal: %w", err), master.Close(), slave.Close())
		}
	default:
	}
	run.Stdin, run.Stdout, run.Stderr = slave, slave, slave
	run.SysProcAttr.Setctty = true
	done, copied := make(chan struct{}), make(chan struct{})
	started = func(err error) {
		_ = slave.Close()
		if err != nil {
			close(copied)
			return
		}
		go func() {
			defer close(copied)
			c.copyTerminal(master, done)
		}()
	}
	finish = func() error {
		close(done)
		awaitOutput(copied)
		return master.Close()
	}
	return started, finish, nil
}

// received uses the terminal that the program sends. crun, when it copies itself, drops what
// the command has written last (wait_for_process in src/libcrun/container.c).
func (c *Command) received(console *Console) func(*exec.Cmd) (started func(error), finish func() error, err error) {
	return func(*exec.Cmd) (started func(error), finish func() error, err error) {
		done, copied := make(chan struct{}), make(chan struct{})
		var master *os.File
		got := make(chan struct{}) // closed when the program has sent it, or does not
		started = func(err error) {
			if err != nil {
				console.Close()
			}
			go func() {
				defer close(copied)
				// A program that sends none has failed, which its pid file or exit code says.
				master, _ = console.receiveFile()
				close(got)
				if master != nil {
					c.copyTerminal(master, done)
				}
			}()
		}
		finish = func() error {
			close(done)
			select {
			case <-got:
			case <-time.After(outputDelay):
			}
			console.Close()
			if <-got; master == nil {
				return nil
			}
			awaitOutput(copied)
			return master.Close()
		}
		return started, finish, nil
	}
}

// copyTerminal copies between the terminal and the client until the terminal ends, and applies
// its sizes until done is closed.
func (c *Command) copyTerminal(master *os.File, done <-chan struct{}) {
	go c.resizes(master, done)
	if c.Stdin != nil {
		go func() { _, _ = io.Copy(master, c.Stdin) }() // ends with the input or the terminal
	}
	output := c.Stdout
	if output == nil {
		output = io.Discard
	}
	_, _ = io.Copy(output, master) // EIO is the end of a terminal
}

// awaitOutput waits until the rest of the output was copied.
func awaitOutput(copied <-chan struct{}) {
	timer := time.NewTimer(outputDelay)
	defer timer.Stop()
	select {
	case <-copied:
	case <-timer.C:
	}
}

// resizes applies the sizes of the terminal until done is closed.
func (c *Command) resizes(master *os.File, done <-chan struct{}) {
	for {
		select {
		case size, ok := <-c.Resize:
			if !ok {
				return
			}
			_ = setSize(master, size) // the terminal may have been closed
		case <-done:
			return
		}
	}
}

// setSize sets the size of a terminal; the kernel sends SIGWINCH.
func setSize(terminal *os.File, size Size) error {
	raw, err := terminal.SyscallConn()
	if err != nil {
		return err
	}
	controlErr := raw.Control(func(fd uintptr) {
		err = unix.IoctlSetWinsize(int(fd), unix.TIOCSWINSZ, &unix.Winsize{Col: size.Width, Row: size.Height})
	})
	return errors.Join(controlErr, err)
}

// openTerminal returns both ends of a new terminal (pty(7)).
func openTerminal() (master, slave *os.File, err error) {
	fd, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, nil, err
	}
	master = os.NewFile(uintptr(fd), "/dev/ptmx")
	if err := unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err != nil {
		return nil, nil, errors.Join(fmt.Errorf("unlock: %w", err), master.Close())
	}
	// By its path, the peer may be that of another instance of devpts.
	peer, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.TIOCGPTPEER, unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC)
	if errno != 0 {
		return nil, nil, errors.Join(fmt.Errorf("open peer: %w", errno), master.Close())
	}
	return master, os.NewFile(peer, "terminal"), nil
}

// Sweep kills the commands that an earlier process has left in a directory for commands, and
// removes their files. owns reports whether a process is in a container: the PID of a command
// that has ended may belong to another process.
func Sweep(dir string, owns func(pid int, container string) bool) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("sweep commands: %w", err)
	}
	var failed error
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		pid, pidErr := ReadPID(filepath.Join(path, commandPID))
		container, idErr := atomicfile.Read(filepath.Join(path, commandContainer), 256)
		if pidErr == nil && idErr == nil && owns(pid, string(container)) {
			killPID(pid)
		}
		failed = errors.Join(failed, os.RemoveAll(path))
	}
	if failed != nil {
		return fmt.Errorf("sweep commands: %w", failed)
	}
	return nil
}
