package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tinylet/tinylet/agent/container/podlogs"
	"github.com/tinylet/tinylet/agent/pod"
	"github.com/tinylet/tinylet/agent/server/local"
)

type logFlags struct {
	socket     *string
	container  string
	follow     bool
	tail       int64
	since      time.Duration
	previous   bool
	timestamps bool
	limitBytes int64
	raw        bool
}

func (s *system) logs() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "logs POD [flags]",
		Short: "Print the log of a container",
		Long: "Print the log of a container: its standard output and standard error.\n\n" +
			"POD is NAME, NAMESPACE/NAME, or a prefix of either that only one pod has. If the\n" +
			"agent is not running, the command searches the log files of the node.\n\n" +
			"On a terminal, control characters are printed as ^[, \\u009b or \\x9b, because the\n" +
			"output of a container can change the terminal. --raw prints them unchanged,\n" +
			"colours included.",
		Example: `  # Print the last 20 lines and follow the log across restarts.
  tinylet logs web -f --tail 20

  # Print the log of the container before its last restart.
  tinylet logs web -c nginx --previous

  # Print the last hour with timestamps.
  tinylet logs kube-system/dns --since 1h --timestamps`,
		Args: cobra.ExactArgs(1),
	}
	f := logFlags{socket: addSocket(cmd)}
	flags := cmd.Flags()
	flags.StringVarP(&f.container, "container", "c", "", "container `name`; the default is the annotation kubectl.kubernetes.io/default-container, or else the first container")
	flags.BoolVarP(&f.follow, "follow", "f", false, "follow the log; wait for a log that does not exist yet")
	flags.Int64Var(&f.tail, "tail", -1, "`number` of last lines to print; -1 is all")
	flags.DurationVar(&f.since, "since", 0, "print only lines newer than this `duration`, such as 5m or 2h")
	flags.BoolVarP(&f.previous, "previous", "p", false, "print the log of the container before its last restart")
	flags.BoolVar(&f.timestamps, "timestamps", false, "print a timestamp before each line")
	flags.Int64Var(&f.limitBytes, "limit-bytes", 0, "maximum `number` of bytes to print; 0 is no limit")
	addRaw(flags, &f.raw)
	cmd.RunE = func(cmd *cobra.Command, args []string) error { return s.printLogs(cmd, args[0], &f) }
	return command(cmd)
}

func (s *system) printLogs(cmd *cobra.Command, arg string, f *logFlags) error {
	o, err := f.options(s.now())
	if err != nil {
		return err
	}
	path, err := s.logPath(cmd.Context(), cmd.ErrOrStderr(), arg, f)
	if err != nil {
		return err
	}
	src := podlogs.Source{Path: path, FollowRestarts: !f.previous, WaitForDir: f.follow}
	out, flush := terminalWriter(cmd.OutOrStdout(), f.raw)
	damaged, err := podlogs.Read(cmd.Context(), src, o, podlogs.Output{Stdout: out})
	flush()
	if damaged > 0 {
		fmt.Fprintf(cmd.ErrOrStderr(), "skipped damaged lines, which a power cut can cause: %d\n", damaged)
	}
	if errors.Is(err, fs.ErrNotExist) {
		return &ExitError{Code: codeNotFound, Err: fmt.Errorf("read the container's log: it was removed: %w", err)}
	}
	return err
}

func (f *logFlags) options(now time.Time) (podlogs.Options, error) {
	o := podlogs.Options{Follow: f.follow, Timestamps: f.timestamps}
	if f.tail < -1 {
		return o, fmt.Errorf("--tail is %d: it must be -1 or more", f.tail)
	}
	if f.tail >= 0 {
		o.Tail = &f.tail
	}
	if f.since < 0 || f.limitBytes < 0 {
		return o, errors.New("--since and --limit-bytes must not be negative")
	}
	if f.since > 0 {
		o.Since = now.Add(-f.since)
	}
	if f.limitBytes > 0 {
		o.LimitBytes = &f.limitBytes
	}
	if f.follow && f.previous {
		return o, errors.New("--follow and --previous exclude each other: the log of a terminated container does not grow")
	}
	return o, nil
}

// logPath returns the log file to read. It writes notes for the user to notes.
func (s *system) logPath(ctx context.Context, notes io.Writer, arg string, f *logFlags) (string, error) {
	p, err := choosePod(ctx, local.NewClient(*f.socket), arg)
	if errors.Is(err, local.ErrNotRunning) {
		fmt.Fprintln(notes, "the agent is not running; searching the log files under "+s.logRoot)
		return s.logPathFromFiles(notes, arg, f)
	}
	if err != nil {
		return "", err
	}
	c, all, err := containerOf(notes, p, f.container)
	if err != nil {
		return "", err
	}
	if c.LogPath == "" {
		none := fmt.Errorf("container %q has no log yet: it is %s", c.Name, strings.TrimSpace(clean(c.Reason+" "+c.Message)))
		if !f.follow {
			return "", &ExitError{Code: codeNotFound, Err: none}
		}
		fmt.Fprintf(notes, "%v; waiting for it\n", none)
		return podlogs.FirstPath(logRootOf(s.logRoot, all), p.Pod.Namespace, p.Pod.Name, string(p.Pod.UID), c.Name), nil
	}
	// While a container waits for its restart, the newest log is that of the
	// previous container.
	if !f.previous || (c.State == stateWaiting && c.LastRestart != nil) {
		return c.LogPath, nil
	}
	return previousLog(c.LogPath, c.Name)
}

// logRootOf returns the directory of all pod logs, from the log path of a container
// that has one, or else fallback.
func logRootOf(fallback string, containers []ContainerDocument) string {
	for i := range containers {
		if path := containers[i].LogPath; path != "" {
			return filepath.Dir(filepath.Dir(filepath.Dir(path)))
		}
	}
	return fallback
}

// previousLog returns the log file before path of the container name.
func previousLog(path, name string) (string, error) {
	path, err := podlogs.PreviousPath(path)
	if errors.Is(err, podlogs.ErrNoPrevious) {
		return "", &ExitError{Code: codeNotFound, Err: fmt.Errorf("container %q: %w", name, podlogs.ErrNoPrevious)}
	}
	return path, err
}

// logPathFromFiles returns the log file to read without an agent. Of several pods
// with the same name, it takes the one with the newest log, because logs of deleted
// pods can remain.
func (s *system) logPathFromFiles(notes io.Writer, arg string, f *logFlags) (string, error) {
	logs, err := podlogs.List(s.logRoot)
	if err != nil {
		return "", err
	}
	slices.SortStableFunc(logs, func(a, b podlogs.Log) int { return b.Modified.Compare(a.Modified) })
	var pods []pod.Ref
	for _, l := range logs {
		pods = append(pods, pod.Ref{Namespace: l.Namespace, Name: l.Pod})
	}
	i, err := pick(pods, arg)
	if err != nil {
		return "", err
	}
	paths := map[string]string{}
	for _, l := range logs {
		if l.UID == logs[i].UID && l.Pod == logs[i].Pod && l.Namespace == logs[i].Namespace {
			paths[l.Container] = l.Path
		}
	}
	names := slices.Sorted(maps.Keys(paths))
	name, err := chooseContainer(notes, logs[i].Pod, names, f.container, "", names[0])
	if err != nil {
		return "", err
	}
	if !f.previous {
		return paths[name], nil
	}
	return previousLog(paths[name], name)
}
