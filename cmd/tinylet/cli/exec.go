package cli

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/spf13/cobra"

	"github.com/tinylet/tinylet/agent/server/local"
	"github.com/tinylet/tinylet/agent/server/remotecommand"
)

// execFlags are the flags of exec.
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
		Long: "Run a command in a container of a pod that runs, and end with its exit code.\n\n" +
			"POD is a name, its beginning if that is unique, or NAMESPACE/NAME. The command is\n" +
			"not read by a shell unless it is one. It needs the agent, and no API server.\n\n" +
			"Without -t, control characters are shown as ^[, \\u009b or \\x9b where the output is a\n" +
			"terminal; --raw writes them as they are. With -t the command has the terminal.",
		Example: `  # A shell in the pod whose name begins with web.
  tinylet exec -it web -- sh

  # What does the second container see?
  tinylet exec web -c proxy -- cat /etc/resolv.conf

  # Copy a file into it, and one out of it.
  tinylet exec -i web -- sh -c 'cat > /tmp/new.conf' < new.conf
  tinylet exec web -- cat /var/log/app.log > app.log`,
		Args: execArgs,
	}
	f := execFlags{socket: addSocket(cmd)}
	flags := cmd.Flags()
	flags.StringVarP(&f.container, "container", "c", "", "`name` of the container; needed where there are several")
	flags.BoolVarP(&f.stdin, "stdin", "i", false, "give the command the standard input")
	flags.BoolVarP(&f.tty, "tty", "t", false, "give the command a terminal; its errors come with its output then")
	addRaw(flags, &f.raw)
	cmd.RunE = func(cmd *cobra.Command, args []string) error { return s.runExec(cmd, args[0], args[1:], &f) }
	return command(cmd)
}

// execArgs wants the command behind --, so that its flags are its own.
func execArgs(cmd *cobra.Command, args []string) error {
	switch dash := cmd.ArgsLenAtDash(); {
	case dash < 0:
		return errors.New("there is no -- before the command; write tinylet exec POD -- COMMAND")
	case dash != 1:
		return fmt.Errorf("there are %d words before --; write one POD, and the command behind --", dash)
	case len(args) < 2:
		return errors.New("there is no command behind --; to get a shell, write -it POD -- sh")
	}
	return nil
}

func (s *system) runExec(cmd *cobra.Command, arg string, command []string, f *execFlags) error {
	if f.tty && !isTerminal(s.stdin) {
		return errors.New("-t needs a terminal, and the standard input is none; leave out -t")
	}
	client := local.NewClient(*f.socket)
	pods, err := client.Pods(cmd.Context(), arg)
	if err != nil {
		return err
	}
	p, err := choose(pods, arg)
	if err != nil {
		return err
	}
	doc := podDocument(p)
	var names []string
	for i := range doc.Containers {
		names = append(names, doc.Containers[i].Name)
	}
	name, err := chooseContainer(cmd.ErrOrStderr(), p.Pod.Name, names, f.container, p.Pod.Annotations[annotationDefaultContainer], firstContainer(p.Pod))
	if err != nil {
		return err
	}

	stdout, flushOut := shown(cmd.OutOrStdout(), f.raw || f.tty)
	defer flushOut()
	stderr, flushErr := shown(cmd.ErrOrStderr(), f.raw || f.tty)
	defer flushErr()
	ctx, cancel := context.WithCancelCause(cmd.Context())
	defer cancel(nil)
	session := remotecommand.Session{
		Dial:    client.Dial,
		Path:    local.PathExec + p.Pod.Namespace + "/" + p.Pod.Name + "/" + string(p.Pod.UID) + "/" + name,
		Command: command,
		Stdout:  stdout, Stderr: stderr,
		TTY: f.tty,
	}
	if f.stdin {
		in, err := newInput(s.stdin)
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
	return execEnd(cmd.Context(), code, err, fmt.Sprintf("exec in container %q of %s", name, podName{p.Pod.Namespace, p.Pod.Name}))
}

// execEnd is what the command line ends with: what names the attempt.
func execEnd(ctx context.Context, code int, err error, what string) error {
	var refused *remotecommand.ResponseError
	var failed *remotecommand.CommandError
	switch {
	case err == nil && code == 0:
		return nil
	case err == nil:
		return &ExitError{Code: code}
	case ctx.Err() != nil:
		return &ExitError{Code: codeInterrupted}
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
