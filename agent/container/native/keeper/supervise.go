package keeper

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tinylet/tinylet/agent/wait"
)

// Supervisor keeps a keeper running for as long as the agent runs. The keeper survives it, and
// that of the next agent finds it.
type Supervisor struct {
	Client
	// Program is the path of the program, and Build its build. A keeper of another build is
	// replaced by the program.
	Program, Build string
	// Env is the environment of the process.
	Env []string
	// Cgroup is the directory of the process' cgroup. If it is empty, it is the caller's.
	Cgroup string
	// Stderr is what the process writes its messages to. It must not be a pipe of the caller.
	Stderr *os.File
	Log    *slog.Logger
}

const (
	// answerTimeout limits the wait for a keeper that was started or replaced.
	answerTimeout = 30 * time.Second
	// settled is how long a keeper has run whose end is no failure to start.
	settled = 10 * time.Second
)

// Run keeps a keeper running until ctx ends. It calls running each time one answers, also
// one that ran before.
func (s *Supervisor) Run(ctx context.Context, running func()) {
	var backoff wait.Backoff
	for ctx.Err() == nil {
		began := time.Now()
		err := s.ensure(ctx)
		if err == nil {
			running()
			// The keeper has no other reason to close the connection than its end.
			err = s.Watch(ctx, func(Container) {})
		}
		if ctx.Err() != nil {
			return
		}
		s.Log.Warn("keeper does not run", "error", err)
		if time.Since(began) >= settled {
			backoff.Reset()
			continue
		}
		wait.Pause(ctx, backoff.Next())
	}
}

// ensure returns when a keeper of the build answers.
func (s *Supervisor) ensure(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	hello, err := s.Hello(ctx)
	switch {
	case errors.Is(err, ErrUnavailable):
		return s.start(ctx)
	case err != nil:
		return err
	case hello.Build != s.Build:
		return s.replace(ctx)
	}
	return nil
}

// start starts a keeper, and waits until it answers.
func (s *Supervisor) start(ctx context.Context) error {
	cmd := &exec.Cmd{Path: s.Program, Args: []string{Name, "--dir=" + s.Dir}, Env: s.Env, Dir: "/", Stderr: s.Stderr}
	cmd.SysProcAttr = &unix.SysProcAttr{Setsid: true} // it gets no signal of the caller's group
	if s.Cgroup != "" {
		fd, err := unix.Open(s.Cgroup, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		if err != nil {
			return fmt.Errorf("start keeper: open cgroup %q: %w", s.Cgroup, err)
		}
		defer func() { _ = unix.Close(fd) }()
		cmd.SysProcAttr.UseCgroupFD, cmd.SysProcAttr.CgroupFD = true, fd
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start keeper: %w", err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }() // until its end, which may be after the caller's
	for {
		if _, err := s.Hello(ctx); err == nil {
			return nil
		}
		select {
		case err := <-ended:
			return fmt.Errorf("start keeper: it has ended: %w", err)
		case <-ctx.Done():
			return fmt.Errorf("start keeper: it does not answer: %w", context.Cause(ctx))
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// replace makes the keeper execute the program, and waits until it answers.
func (s *Supervisor) replace(ctx context.Context) error {
	program, err := os.Open(s.Program)
	if err != nil {
		return fmt.Errorf("replace keeper: %w", err)
	}
	defer func() { _ = program.Close() }()
	if err := s.Upgrade(ctx, program); err != nil {
		return fmt.Errorf("replace keeper: %w", err)
	}
	for {
		hello, err := s.Hello(ctx)
		if err == nil && hello.Build == s.Build {
			return nil
		}
		if !wait.Pause(ctx, 10*time.Millisecond) {
			return fmt.Errorf("replace keeper: it has the build %q, %w", hello.Build, errors.Join(err, context.Cause(ctx)))
		}
	}
}
