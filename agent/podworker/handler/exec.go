package handler

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/tinylet/tinylet/agent/container"
)

// execSlack is what the runtime gets, beyond the probe's timeout, to end the
// command and to say so. A command that left a child behind which holds its
// output may keep the runtime from ever answering.
const execSlack = 2 * time.Second

// ExitError says that a command ended with an exit code other than 0. Its
// text does not have the output, which may hold secrets.
type ExitError struct {
	Code int32
	// Output is the head of what the command wrote, errors last.
	Output string
}

func (e *ExitError) Error() string { return fmt.Sprintf("command exited with %d", e.Code) }

// run runs a command; a timeout of 0 leaves the time to ctx.
func (r *Runner) run(ctx context.Context, id string, cmd []string, timeout time.Duration) (output string, err error) {
	stdout, stderr, code, err := r.exec.ExecSync(ctx, id, cmd, timeout)
	output = head(stdout, stderr)
	if err == nil && code != 0 {
		err = &ExitError{Code: code, Output: output}
	}
	return output, err
}

// probeExec succeeds when the command ends in time with exit code 0. Its time
// begins when it starts: a few commands of probes run at a time. Hooks do not
// wait for them: each container runs one at a time, and a grace period counts.
func (r *Runner) probeExec(ctx context.Context, a *v1.ExecAction, t *Target, timeout time.Duration) (Result, error) {
	leave, err := r.commands.enter(ctx)
	if err != nil {
		return Result{}, err
	}
	defer leave()
	limited, cancel := context.WithTimeout(ctx, timeout+execSlack)
	defer cancel()
	cmd := expandAll(a.Command, t.Container.Env)
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

// head is the first maxOutput bytes of both outputs: what is longer is not
// kept alive.
func head(stdout, stderr []byte) string {
	stdout = stdout[:min(len(stdout), maxOutput)]
	stderr = stderr[:min(len(stderr), maxOutput-len(stdout))]
	if len(stderr) == 0 {
		return string(stdout)
	}
	var out strings.Builder
	out.Grow(len(stdout) + len(stderr))
	out.Write(stdout)
	out.Write(stderr)
	return out.String()
}

// expandAll puts the values of the container's plain variables in the place
// of $(NAME). Variables with a source are empty here, as upstream has it
// (ExpandContainerCommandOnlyStatic in pkg/kubelet/container/helpers.go).
func expandAll(cmd []string, env []v1.EnvVar) []string {
	for i, word := range cmd {
		if !strings.Contains(word, "$") {
			continue
		}
		out := make([]string, len(cmd))
		copy(out, cmd[:i])
		for j := i; j < len(cmd); j++ {
			out[j] = expand(cmd[j], env)
		}
		return out
	}
	return cmd
}

// expand expands one word by the rules of Kubernetes'
// third_party/forked/golang/expansion: $$ is one $, what is not closed or not
// known stays, values are not expanded again.
func expand(word string, env []v1.EnvVar) string {
	var out strings.Builder
	for {
		before, rest, found := strings.Cut(word, "$")
		out.WriteString(before)
		if !found {
			return out.String()
		}
		if after, escaped := strings.CutPrefix(rest, "$"); escaped {
			out.WriteByte('$')
			word = after
			continue
		}
		name, after, closed := strings.Cut(rest, ")")
		name, opened := strings.CutPrefix(name, "(")
		if !opened || !closed {
			out.WriteByte('$')
			word = rest
			continue
		}
		out.WriteString(valueOf(name, env))
		word = after
	}
}

// valueOf is a variable's value, the last of that name, or the reference.
func valueOf(name string, env []v1.EnvVar) string {
	for i := len(env) - 1; i >= 0; i-- {
		if env[i].Name == name {
			return env[i].Value
		}
	}
	return "$(" + name + ")"
}
