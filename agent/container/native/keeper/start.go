package keeper

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tinylet/tinylet/agent/container/native/oci"
)

const defaultStartTimeout = 2 * time.Minute

// start runs the OCI runtime program until the container runs. After an error the container
// is forgotten, and the program may have left something that only the program can delete.
func (k *Keeper) start(s *Start) (Container, error) {
	if err := s.validate(); err != nil {
		return Container{}, err
	}
	c := newContainer(filepath.Join(k.containersDir(), s.ID), Container{
		ID: s.ID, Phase: PhaseStarting, LogPath: s.LogPath, Stdin: s.Stdin, Terminal: s.Terminal,
	})
	if err := k.insert(c); err != nil {
		return Container{}, err
	}
	err := k.run(c, s)
	if err != nil {
		return Container{}, fmt.Errorf("start container %s: %w", s.ID, errors.Join(err, k.remove(c)))
	}
	return c.snapshot(), nil
}

// run starts a container.
func (k *Keeper) run(c *container, s *Start) error {
	if err := os.RemoveAll(c.dir); err != nil { // of an earlier container that could not be removed
		return err
	}
	if err := os.MkdirAll(c.dir, 0o700); err != nil {
		return err
	}
	if err := c.log.open(); err != nil {
		return err
	}
	if err := saveRecord(c.dir, c.snapshot()); err != nil {
		return err
	}
	stdio, err := k.openStdio(c, s)
	defer stdio.close()
	if err != nil {
		return err
	}
	endStart := k.reaper.begin()
	defer endStart()
	if err := k.runProgram(c, s, stdio); err != nil {
		return err
	}
	pid, err := oci.ReadPID(filepath.Join(c.dir, filePID))
	if err != nil {
		return err
	}
	process, _, err := oci.FindProcess(pid)
	if err != nil && !errors.Is(err, oci.ErrGone) {
		return err
	}
	if s.Terminal {
		if err := k.readTerminal(c, stdio.console); err != nil {
			return err
		}
	}
	started := time.Now().UnixNano()
	if err := c.set(func(s *Container) {
		s.Phase, s.PID, s.StartTime, s.StartedAt = PhaseRunning, pid, process.StartTime, started
	}); err != nil {
		k.config.Log.Warn("cannot write record of container", "error", err) // it runs
	}
	k.reaper.claim(pid, func(status unix.WaitStatus) { go k.ended(c, codeOf(status), true) })
	return nil
}

// stdio are the descriptors that the OCI runtime program gets, and closes with its end.
type stdio struct {
	fds     [3]int
	owned   []int
	console *oci.Console
}

func (s *stdio) close() {
	for _, fd := range s.owned {
		_ = unix.Close(fd)
	}
	if s.console != nil {
		s.console.Close()
	}
}

// consolePath returns a path for another socket. Those in the directories of containers are
// too long for one.
func (k *Keeper) consolePath() string {
	return filepath.Join(k.config.Dir, fileConsole+strconv.FormatUint(uint64(k.consoles.Add(1)), 10))
}

// removeConsoles removes the sockets of a keeper that was killed.
func (k *Keeper) removeConsoles() error {
	stale, err := filepath.Glob(filepath.Join(k.config.Dir, fileConsole+"[0-9]*"))
	for _, path := range stale {
		err = errors.Join(err, os.Remove(path))
	}
	return err
}

// openStdio makes the FIFOs of a container, or the socket for its terminal.
func (k *Keeper) openStdio(c *container, s *Start) (*stdio, error) {
	null, err := unix.Open(os.DevNull, unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return &stdio{}, fmt.Errorf("open %s: %w", os.DevNull, err)
	}
	io := &stdio{fds: [3]int{null, null, null}, owned: []int{null}}
	if s.Terminal {
		io.console, err = oci.ListenConsole(k.consolePath())
		return io, err
	}
	for i, name := range []string{1: fileOut, 2: fileErr} {
		if name == "" {
			continue
		}
		reader, writer, err := makeFIFO(filepath.Join(c.dir, name))
		if err != nil {
			return io, err
		}
		io.fds[i], io.owned = writer, append(io.owned, writer)
		if err := c.read(k.outputs, "std"+name, reader); err != nil {
			return io, err
		}
	}
	if !s.Stdin {
		return io, nil
	}
	path := filepath.Join(c.dir, fileIn)
	if err := unix.Mkfifo(path, 0o600); err != nil {
		return io, fmt.Errorf("make FIFO %q: %w", path, err)
	}
	fd, err := openStdin(path)
	if err != nil {
		return io, err
	}
	c.mu.Lock()
	c.stdin = fd
	c.mu.Unlock()
	input, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0)
	if err != nil {
		return io, fmt.Errorf("open FIFO %q: %w", path, err)
	}
	io.fds[0], io.owned = input, append(io.owned, input)
	return io, nil
}

// runProgram runs `PROGRAM run --detach`.
func (k *Keeper) runProgram(c *container, s *Start, io *stdio) error {
	logPath := filepath.Join(c.dir, fileLog)
	console := ""
	if io.console != nil {
		console = io.console.Path
	}
	args := s.Program.Run(s.ID, s.Bundle, filepath.Join(c.dir, filePID), logPath, console)
	done := make(chan unix.WaitStatus, 1)
	pid, err := k.reaper.start(func() (int, error) {
		pid, _, err := syscall.StartProcess(s.Program[0], args, &syscall.ProcAttr{
			Dir: s.Bundle, Env: k.config.Env, Files: []uintptr{uintptr(io.fds[0]), uintptr(io.fds[1]), uintptr(io.fds[2])},
			Sys: &syscall.SysProcAttr{Setsid: true},
		})
		return pid, err
	}, func(status unix.WaitStatus) { done <- status })
	if err != nil {
		return fmt.Errorf("%w: run %q in %q: %w", oci.ErrFailed, s.Program[0], s.Bundle, err)
	}
	limit := defaultStartTimeout
	if s.TimeoutSeconds > 0 {
		limit = time.Duration(s.TimeoutSeconds) * time.Second
	}
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case status := <-done:
		if code := codeOf(status); code != 0 {
			return fmt.Errorf("%w: %q exited with %d: %s", oci.ErrFailed, s.Program[0], code, oci.LastMessage(logPath))
		}
		return nil
	case <-timer.C:
		_ = unix.Kill(-pid, unix.SIGKILL) // the program and its hooks; it has not been reaped
		<-done
		return fmt.Errorf("%w: %q has not started the container within %s: %s", oci.ErrFailed, s.Program[0], limit, oci.LastMessage(logPath))
	}
}

// readTerminal begins to read the terminal that the OCI runtime program has made.
func (k *Keeper) readTerminal(c *container, from *oci.Console) error {
	master, err := from.Receive()
	if err != nil {
		return err
	}
	if err := unix.SetNonblock(master, true); err != nil {
		_ = unix.Close(master)
		return fmt.Errorf("terminal: %w", err)
	}
	return c.readMaster(k.outputs, &stream{c: c, fd: master, entries: entries{stream: "stdout"}})
}

// readMaster reads a terminal as standard output. The keeper's other descriptor of it is for
// clients.
func (c *container) readMaster(o *outputs, s *stream) error {
	master, err := unix.FcntlInt(uintptr(s.fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		_ = unix.Close(s.fd)
		return fmt.Errorf("terminal: %w", err)
	}
	c.mu.Lock()
	c.master = master
	c.mu.Unlock()
	return c.resume(o, s)
}
