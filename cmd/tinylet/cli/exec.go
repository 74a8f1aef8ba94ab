package cli

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/spf13/cobra"

	"github.com/tinylet/tinylet/agent/pod"
	"github.com/tinylet/tinylet/agent/server/local"
	"github.com/tinylet/tinylet/agent/server/remotecommand"
)

type execFlags struct {
	socket    *string
	container string
	stdin     bool
	tty       bool
	raw       bool
}

func (s *system) exec() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "exec POD [flags] -- COMMAND [ARGUMENT...]",
		Short: "Run a command in a container",
		Long: "Run a command in a running container and exit with its exit code.\n\n" +
			"POD is NAME, NAMESPACE/NAME, or a prefix of either that only one pod has. The\n" +
			"command runs without a shell unless it is one. The agent must be running. The API\n" +
			"server is not needed.\n\n" +
			"Without -t, control characters are printed as ^[, \\u009b or \\x9b on a terminal.\n" +
			"--raw prints them unchanged. With -t, the command controls the terminal.",
		Example: `  # Run a shell in the pod whose name begins with web.
  tinylet exec -it web -- sh

  # Print a file of the second container.
  tinylet exec web -c proxy -- cat /etc/resolv.conf

  # Copy a file into the container, and one out of it.
  tinylet exec -i web -- sh -c 'cat > /tmp/new.conf' < new.conf
  tinylet exec web -- cat /var/log/app.log > app.log`,
		Args: execArgs,
	}
	f := execFlags{socket: addSocket(cmd)}
	flags := cmd.Flags()
	flags.StringVarP(&f.container, "container", "c", "", "container `name`; the default is the annotation kubectl.kubernetes.io/default-container, or else the first container")
	flags.BoolVarP(&f.stdin, "stdin", "i", false, "pass standard input to the command")
	flags.BoolVarP(&f.tty, "tty", "t", false, "allocate a terminal for the command; its standard error is then part of its output")
	addRaw(flags, &f.raw)
	cmd.RunE = func(cmd *cobra.Command, args []string) error { return s.runExec(cmd, args[0], args[1:], &f) }
	return command(cmd)
}

// execArgs requires one POD before -- and the command after it, so that flags of the
// command are not flags of exec.
func execArgs(cmd *cobra.Command, args []string) error {
	switch dash := cmd.ArgsLenAtDash(); {
	case dash < 0:
		return errors.New("-- is missing before the command: write tinylet exec POD -- COMMAND")
	case dash != 1:
		return fmt.Errorf("%d arguments before --: write one POD, and the command after --", dash)
	case len(args) < 2:
		return errors.New("the command after -- is missing: for a shell, write -it POD -- sh")
	}
	return nil
}

func (s *system) runExec(cmd *cobra.Command, arg string, command []string, f *execFlags) error {
	if f.tty && !isTerminal(s.stdin) {
		return errors.New("-t needs a terminal, and standard input is not one: omit -t")
	}
	client := local.NewClient(*f.socket)
	p, err := choosePod(cmd.Context(), client, arg)
	if err != nil {
		return err
	}
	c, _, err := containerOf(cmd.ErrOrStderr(), p, f.container)
	if err != nil {
		return err
	}

	stdout, flushOut := terminalWriter(cmd.OutOrStdout(), f.raw || f.tty)
	defer flushOut()
	stderr, flushErr := terminalWriter(cmd.ErrOrStderr(), f.raw || f.tty)
	defer flushErr()
	ctx, cancel := context.WithCancelCause(cmd.Context())
	defer cancel(nil)
	session := remotecommand.Session{
		Dial:    client.Dial,
		Path:    local.PathExec + p.Pod.Namespace + "/" + p.Pod.Name + "/" + string(p.Pod.UID) + "/" + c.Name,
		Command: command,
		Stdout:  stdout, Stderr: stderr,
		TTY: f.tty,
	}
	if f.stdin {
		in, err := newStdinReader(s.stdin)
		if err != nil {
			return err
		}
		defer in.free()
		session.Stdin = in
	}
	if f.tty {
		term := openTerminal(ctx, s.stdin, func() { cancel(&ExitError{Code: codeInterrupted}) })
		defer term.close()
		session.Sizes = term.sizes
		if f.stdin {
			session.OnStart = func() {
				if err := term.raw(); err != nil {
					cancel(err)
				}
			}
		}
	}
	code, err := remotecommand.Run(ctx, session)
	return execError(code, err, fmt.Sprintf("exec in container %q of %s", c.Name, pod.RefOf(p.Pod)))
}

// execError returns the error of the command for the result of a session, with the
// command's exit code if there is one. what describes the attempt.
func execError(code int, err error, what string) error {
	var refused *remotecommand.ResponseError
	var failed *remotecommand.CommandError
	switch {
	case err == nil && code == 0:
		return nil
	case err == nil:
		return &ExitError{Code: code}
	case errors.Is(err, remotecommand.ErrNoAnswer):
		return fmt.Errorf("%s: %w", what, local.ErrNoResponse)
	case errors.As(err, &refused):
		err = fmt.Errorf("%s: %s", what, clean(refused.Text))
		if refused.Code == http.StatusNotFound || refused.Code == http.StatusConflict {
			return &ExitError{Code: codeNotFound, Err: err}
		}
		return err
	case errors.As(err, &failed):
		return fmt.Errorf("%s: %s", what, clean(failed.Text))
	}
	return fmt.Errorf("%s: %w", what, err)
}
