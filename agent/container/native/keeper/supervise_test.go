package keeper

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// supervise runs a supervisor of the lab's keeper. stop ends it.
func (l *lab) supervise(program, build string) (running <-chan struct{}, stop func()) {
	l.Helper()
	s := &Supervisor{
		Client: l.Client, Program: program, Build: build, Env: append(os.Environ(), roleVariable+"=main"), Stderr: os.Stderr, Log: testLogger(os.Stderr),
	}
	ctx, cancel := context.WithCancel(context.Background())
	calls, done := make(chan struct{}, 10), make(chan struct{})
	go func() {
		defer close(done)
		s.Run(ctx, func() { calls <- struct{}{} })
	}()
	stop = func() {
		cancel()
		<-done
	}
	l.Cleanup(stop)
	return calls, stop
}

func (l *lab) hello() Hello {
	l.Helper()
	h, err := l.Hello(l.Context())
	if err != nil {
		l.Fatal(err)
	}
	return h
}

func await(t *testing.T, what string, c <-chan struct{}) {
	t.Helper()
	select {
	case <-c:
	case <-time.After(time.Minute):
		t.Fatalf("timeout: %s", what)
	}
}

// TestSupervisor starts a keeper, starts another one when that is killed, finds the one of
// before, and replaces it by that of a new build. A container survives all of it.
func TestSupervisor(t *testing.T) {
	l := newLab(t)
	l.kill() // the lab's own
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	running, stop := l.supervise(program, "main")
	await(t, "the keeper runs", running)
	first := l.hello()
	if first.Build != "main" {
		t.Errorf("the build is %q", first.Build)
	}
	pid := first.PID
	t.Cleanup(func() { _ = unix.Kill(pid, unix.SIGKILL) })
	container := l.run("one", "exec sleep 1000")

	if err := unix.Kill(first.PID, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	await(t, "a keeper runs again", running)
	second := l.hello()
	pid = second.PID
	if second.PID == first.PID {
		t.Errorf("the keeper still has process %d", first.PID)
	}
	if c := l.state("one"); c.Phase != PhaseRunning || c.PID != container.PID {
		t.Errorf("the container is %+v", c)
	}
	stop()
	if h := l.hello(); h != second {
		t.Errorf("after the supervisor's end the keeper is %+v, want %+v", h, second)
	}

	fresh := filepath.Join(l.dir, "keeper-new")
	data, err := os.ReadFile(program)
	if err == nil {
		err = os.WriteFile(fresh, data, 0o700)
	}
	if err != nil {
		t.Fatal(err)
	}
	running, stop = l.supervise(fresh, "new")
	await(t, "the keeper is replaced", running)
	if h := l.hello(); h.PID != second.PID || h.Build != "new" {
		t.Errorf("the replaced keeper is %+v, want process %d", h, second.PID)
	}
	if c := l.state("one"); c.Phase != PhaseRunning || c.PID != container.PID {
		t.Errorf("the container is %+v", c)
	}
	stop()
}

// TestSupervisorCannotStart requires that a supervisor of a program that fails ends with its
// context.
func TestSupervisorCannotStart(t *testing.T) {
	l := newLab(t)
	l.kill()
	running, stop := l.supervise("/bin/false", "main")
	time.Sleep(50 * time.Millisecond)
	stop()
	select {
	case <-running:
		t.Error("a keeper runs")
	default:
	}
}

// TestStderrWithoutReader requires that a message does not end a keeper whose log daemon has
// ended.
func TestStderrWithoutReader(t *testing.T) {
	l := newLab(t)
	l.kill()
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	l.process = &exec.Cmd{Path: program, Args: []string{Name, "--dir=" + l.Dir}, Env: append(os.Environ(), roleVariable+"=main"), Stderr: write}
	if err := l.process.Start(); err != nil {
		t.Fatal(err)
	}
	if err := write.Close(); err != nil {
		t.Fatal(err)
	}
	l.until("the keeper answers", func() bool {
		_, err := l.Hello(t.Context())
		return err == nil
	})
	if err := read.Close(); err != nil {
		t.Fatal(err)
	}
	// The record of this container cannot be written, which the keeper reports.
	l.run("one", "sleep 0.2")
	record := filepath.Join(l.Dir, "containers", "one")
	if err := errors.Join(os.Rename(record, filepath.Join(l.dir, "moved")), os.WriteFile(record, nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	l.exit("one")
	// Processes do not inherit how the keeper handles the signal.
	l.run("two", "grep SigIgn /proc/self/status")
	l.exit("two")
	text := strings.Join(l.log("two"), "")
	ignored, err := strconv.ParseUint(text[strings.LastIndexByte(text, '\t')+1:], 16, 64)
	if err != nil || ignored&(1<<(unix.SIGPIPE-1)) != 0 {
		t.Errorf("the signals that a container ignores: %q, %v", text, err)
	}
}
