package fake

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/tinylet/tinylet/agent/container"
)

// Exec is the behavior of a command in a container.
type Exec struct {
	// Err is the error of ExecSync, as for an invalid command.
	Err error
	// Delay passes before the command exits. With Hang it never exits.
	Delay time.Duration
	Hang  bool
	// Stdout, Stderr and Code are the result.
	Stdout, Stderr string
	Code           int32
	// Effect, if not nil, is called when the command exits. It may call the
	// runtime.
	Effect func(containerID string)
}

// SetExec sets the behavior of commands whose first word is path, in all
// containers.
func (r *Runtime) SetExec(path string, e Exec) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.execs[path] = e
}

// ExecSync implements container.Containers. As in containerd, the container
// must be running, a command that runs longer than timeout is killed, and so is
// one whose container exits (code 137).
func (r *Runtime) ExecSync(ctx context.Context, containerID string, cmd []string, timeout time.Duration) (stdout, stderr []byte, exitCode int32, err error) {
	limit := time.Duration(0)
	if timeout = max(timeout, 0); timeout > 0 {
		limit = r.timeout + timeout
	}
	err = r.do(ctx, "ExecSync", containerID, limit, func(ctx context.Context) error {
		r.mu.Lock()
		p, err := r.running(containerID)
		run := &execution{r: r, p: p, timeout: timeout, broken: r.broken}
		r.mu.Unlock()
		if err != nil {
			return err
		}
		if err := run.runWithTimeout(ctx, cmd, p.done); err != nil {
			return err
		}
		stdout, stderr, exitCode = kept(&run.stdout), kept(&run.stderr), run.code
		return nil
	})
	if err != nil {
		return nil, nil, 0, err
	}
	return stdout, stderr, exitCode, nil
}

// kept returns the part of an output that ExecSync returns.
func kept(output *strings.Builder) []byte {
	text := output.String()
	return []byte(text[:min(len(text), container.MaxExecOutput)])
}

// execution is one command that runs in a container.
type execution struct {
	r              *Runtime
	p              *process
	timeout        time.Duration
	broken         <-chan struct{}
	stdout, stderr strings.Builder
	code           int32
}

// errKilled ends a command whose container has exited.
var errKilled = errors.New("killed with its container")

func (e *execution) runWithTimeout(ctx context.Context, cmd []string, done <-chan struct{}) error {
	var limit <-chan time.Time
	if e.timeout > 0 {
		timer := time.NewTimer(e.timeout)
		defer timer.Stop()
		limit = timer.C
	}
	wait := func(d time.Duration, forever bool) error {
		if d <= 0 && !forever {
			return nil
		}
		var elapsed <-chan time.Time
		if !forever {
			timer := time.NewTimer(d)
			defer timer.Stop()
			elapsed = timer.C
		}
		select {
		case <-elapsed:
			return nil
		case <-limit:
			return fmt.Errorf("timeout %v exceeded: %w", e.timeout, container.ErrTimeout)
		case <-done:
			return errKilled
		case <-e.broken:
			return container.ErrUnavailable
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	err := e.run(cmd, wait)
	if errors.Is(err, errKilled) {
		e.code, err = 137, nil
	}
	return err
}

// run runs the command: those of SetExec first, then a few of BusyBox.
func (e *execution) run(cmd []string, wait func(time.Duration, bool) error) error {
	if len(cmd) == 0 {
		return errors.New("exec: no command")
	}
	e.r.mu.Lock()
	own, ok := e.r.execs[cmd[0]]
	e.r.mu.Unlock()
	if ok {
		if own.Err != nil {
			return own.Err
		}
		if err := wait(own.Delay, own.Hang); err != nil {
			return err
		}
		if own.Effect != nil {
			own.Effect(e.p.status.GetId())
		}
		e.stdout.WriteString(own.Stdout)
		e.stderr.WriteString(own.Stderr)
		e.code = own.Code
		return nil
	}
	return e.applets(cmd, wait)
}
