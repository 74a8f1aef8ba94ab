package handler

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/tinylet/tinylet/agent/container"
	"github.com/tinylet/tinylet/agent/container/criconfig"
)

// execMargin is the time, beyond the probe's timeout, in which the runtime has to
// end the command and answer. If a child of the command survives and keeps its
// output open, the runtime may never answer.
const execMargin = 2 * time.Second

// ExitError means that a command ended with an exit code other than 0. Its text
// omits the output, which may contain secrets.
type ExitError struct {
	Code int32
	// Output is the start of the command's output, stdout before stderr.
	Output string
}

func (e *ExitError) Error() string { return fmt.Sprintf("command exited with %d", e.Code) }

// run runs a command. With a timeout of 0 only ctx limits it.
func (r *Runner) run(ctx context.Context, id string, cmd []string, timeout time.Duration) (output string, err error) {
	stdout, stderr, code, err := r.exec.ExecSync(ctx, id, cmd, timeout)
	output = truncateOutput(stdout, stderr)
	if err == nil && code != 0 {
		err = &ExitError{Code: code, Output: output}
	}
	return output, err
}

// probeExec succeeds if the command ends in time with exit code 0. The timeout
// begins when the command starts: before that probeExec waits for a slot, because the
// concurrent commands of probes are limited. Hooks need no slot: each container runs
// one hook at a time, and a preStop hook uses up the grace period.
func (r *Runner) probeExec(ctx context.Context, a *v1.ExecAction, t *Target, timeout time.Duration) (Result, error) {
	leave, err := r.commands.Acquire(ctx, maxSlotTime)
	if err != nil {
		return Result{}, err
	}
	defer leave()
	limited, cancel := context.WithTimeout(ctx, timeout+execMargin)
	defer cancel()
	cmd := expandCommand(a.Command, t.Container.Env)
	output, err := r.run(limited, t.ContainerID, cmd, timeout)
	var exit *ExitError
	switch {
	case err == nil:
		return Result{Status: Success, Output: output}, nil
	case errors.As(err, &exit):
		return Result{Status: Failure, Output: output}, nil
	case errors.Is(err, container.ErrTimeout), limited.Err() != nil:
		message := fmt.Sprintf("command timed out: %q timed out after %s", strings.Join(cmd, " "), timeout)
		return Result{Status: Failure, Output: message}, nil
	}
	return Result{}, err
}

// truncateOutput returns the first maxOutput bytes of both outputs. The result is a copy,
// so that longer outputs can be freed.
func truncateOutput(stdout, stderr []byte) string {
	stdout = stdout[:min(len(stdout), maxOutput)]
	stderr = stderr[:min(len(stderr), maxOutput-len(stdout))]
	return string(slices.Concat(stdout, stderr))
}

// expandCommand replaces $(NAME) by the value of the container's variable, the last of
// that name. As upstream, variables with valueFrom are empty
// (ExpandContainerCommandOnlyStatic in pkg/kubelet/container/helpers.go).
func expandCommand(cmd []string, env []v1.EnvVar) []string {
	return criconfig.ExpandAll(cmd, func(name string) (string, bool) {
		for i := range slices.Backward(env) {
			if env[i].Name == name {
				return env[i].Value, true
			}
		}
		return "", false
	})
}

const (
	// maxCommands is the maximum number of concurrent commands of probes. Each
	// needs a process, and memory of the runtime for its output.
	maxCommands = 4
	// maxSlotTime is the maximum time for which a command holds its slot. A command
	// that takes longer continues without a slot, so that slow commands delay
	// the others but never block them.
	maxSlotTime = 2 * time.Second
)
