package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	v1 "k8s.io/api/core/v1"

	"github.com/tinylet/tinylet/agent/container/podlogs"
	"github.com/tinylet/tinylet/agent/server/local"
)

// annotationDefaultContainer names the container that kubectl takes where
// none is asked for.
const annotationDefaultContainer = "kubectl.kubernetes.io/default-container"

// logFlags are the flags of logs.
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
		Short: "Print what a container wrote",
		Long: "Print what a container of a pod wrote to its standard output and error.\n\n" +
			"POD is a name, its beginning if that is unique, or NAMESPACE/NAME. Without an\n" +
			"agent the log files of the node are searched for it.\n\n" +
			"On a terminal control characters are shown as ^[, \\u009b or \\x9b, since a container\n" +
			"can write what changes the terminal; --raw writes them as they are, with colours.",
		Example: `  # The last 20 lines, and then what comes, across restarts.
  tinylet logs web -f --tail 20

  # What did the container before the last restart say?
  tinylet logs web -c nginx --previous

  # The last hour, with times.
  tinylet logs kube-system/dns --since 1h --timestamps`,
		Args: cobra.ExactArgs(1),
	}
	f := logFlags{socket: addSocket(cmd)}
	flags := cmd.Flags()
	flags.StringVarP(&f.container, "container", "c", "", "`name` of the container; needed where there are several")
	flags.BoolVarP(&f.follow, "follow", "f", false, "go on with what is written from now on; wait for a log that is not there yet")
	flags.Int64Var(&f.tail, "tail", -1, "begin with this `number` of last lines; -1 is all")
	flags.DurationVar(&f.since, "since", 0, "leave out what is older than this `time`, such as 5m or 2h")
	flags.BoolVarP(&f.previous, "previous", "p", false, "the container before the last restart")
	flags.BoolVar(&f.timestamps, "timestamps", false, "put its time before each line")
	flags.Int64Var(&f.limitBytes, "limit-bytes", 0, "end after this `number` of bytes; 0 is no limit")
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
	out, flush := shown(cmd.OutOrStdout(), f.raw)
	damaged, err := podlogs.Read(cmd.Context(), src, o, podlogs.Output{Stdout: out})
	flush()
	if damaged > 0 {
		fmt.Fprintf(cmd.ErrOrStderr(), "left out damaged lines, as a power cut leaves them: %d\n", damaged)
	}
	switch {
	case cmd.Context().Err() != nil:
		return &ExitError{Code: codeInterrupted}
	case errors.Is(err, fs.ErrNotExist):
		return &ExitError{Code: codeNotFound, Err: fmt.Errorf("the container has no log any more: %w", err)}
	}
	return err
}

func (f *logFlags) options(now time.Time) (podlogs.Options, error) {
	o := podlogs.Options{Follow: f.follow, Timestamps: f.timestamps}
	if f.tail < -1 {
		return o, fmt.Errorf("--tail %d: it must be -1 or more", f.tail)
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
		return o, errors.New("--follow and --previous: a container that has ended writes nothing more")
	}
	return o, nil
}

// logPath finds the file to read; notes for the user go to notes.
func (s *system) logPath(ctx context.Context, notes io.Writer, arg string, f *logFlags) (string, error) {
	pods, err := local.NewClient(*f.socket).Pods(ctx, arg)
	if errors.Is(err, local.ErrNotRunning) {
		fmt.Fprintln(notes, "the agent does not run; reading the files under "+s.logRoot)
		return s.logPathFromFiles(notes, arg, f)
	}
	if err != nil {
		return "", err
	}
	p, err := choose(pods, arg)
	if err != nil {
		return "", err
	}
	doc := podDocument(p)
	var names []string
	for i := range doc.Containers {
		names = append(names, doc.Containers[i].Name)
	}
	name, err := chooseContainer(notes, p.Pod.Name, names, f.container, p.Pod.Annotations[annotationDefaultContainer], firstContainer(p.Pod))
	if err != nil {
		return "", err
	}
	c := &doc.Containers[slices.Index(names, name)]
	if c.LogPath == "" {
		none := fmt.Errorf("container %q has no log yet: it is %s", name, strings.TrimSpace(clean(c.Reason+" "+c.Message)))
		if !f.follow {
			return "", &ExitError{Code: codeNotFound, Err: none}
		}
		fmt.Fprintf(notes, "%v; waiting for it\n", none)
		return podlogs.FirstPath(logRootOf(s.logRoot, doc.Containers), p.Pod.Namespace, p.Pod.Name, string(p.Pod.UID), name), nil
	}
	// While a container waits for its restart, the newest log is that of
	// the one before.
	if !f.previous || (c.State == stateWaiting && c.LastRestart != nil) {
		return c.LogPath, nil
	}
	return previousLog(c.LogPath, name)
}

// logRootOf is the folder of all logs, going by a container that has one.
func logRootOf(fallback string, containers []ContainerDocument) string {
	for i := range containers {
		if path := containers[i].LogPath; path != "" {
			return filepath.Dir(filepath.Dir(filepath.Dir(path)))
		}
	}
	return fallback
}

func previousLog(path, name string) (string, error) {
	path, err := podlogs.PreviousPath(path)
	if errors.Is(err, podlogs.ErrNoPrevious) {
		return "", &ExitError{Code: codeNotFound, Err: fmt.Errorf("container %q: there is %w", name, podlogs.ErrNoPrevious)}
	}
	return path, err
}

// logPathFromFiles goes by the files alone, the newest first, since those of
// pods of the past are among them.
func (s *system) logPathFromFiles(notes io.Writer, arg string, f *logFlags) (string, error) {
	logs, err := podlogs.List(s.logRoot)
	if err != nil {
		return "", err
	}
	slices.SortStableFunc(logs, func(a, b podlogs.Log) int { return b.Modified.Compare(a.Modified) })
	var pods []podName
	for _, l := range logs {
		pods = append(pods, podName{l.Namespace, l.Pod})
	}
	i, err := pick(pods, arg)
	if err != nil {
		return "", err
	}
	paths := map[string]string{}
	var names []string
	for _, l := range logs {
		if l.UID == logs[i].UID && l.Pod == logs[i].Pod && l.Namespace == logs[i].Namespace {
			paths[l.Container] = l.Path
			names = append(names, l.Container)
		}
	}
	slices.Sort(names)
	name, err := chooseContainer(notes, logs[i].Pod, names, f.container, "", names[0])
	if err != nil {
		return "", err
	}
	if !f.previous {
		return paths[name], nil
	}
	return previousLog(paths[name], name)
}

// chooseContainer answers the one that is asked for, or the only one, or
// preferred where it exists, or else fallback with a note.
func chooseContainer(notes io.Writer, pod string, names []string, asked, preferred, fallback string) (string, error) {
	if asked != "" {
		if !slices.Contains(names, asked) {
			return "", &ExitError{Code: codeNotFound, Err: fmt.Errorf("pod %q has no container %q; it has %s", pod, asked, strings.Join(names, ", "))}
		}
		return asked, nil
	}
	name := fallback
	if slices.Contains(names, preferred) {
		name = preferred
	}
	if !slices.Contains(names, name) {
		return "", &ExitError{Code: codeNotFound, Err: fmt.Errorf("pod %q has no containers", pod)}
	}
	if len(names) > 1 {
		fmt.Fprintf(notes, "container %s of %s; choose another one with -c\n", name, strings.Join(names, ", "))
	}
	return name, nil
}

func firstContainer(p *v1.Pod) string {
	if len(p.Spec.Containers) == 0 {
		return ""
	}
	return p.Spec.Containers[0].Name
}

// choose finds the pod that arg means. Of two lives of one name, which
// follow each other, it takes the one that is not ending.
func choose(pods []local.Pod, arg string) (*local.Pod, error) {
	slices.SortStableFunc(pods, func(a, b local.Pod) int { return ending(a) - ending(b) })
	var names []podName
	for i := range pods {
		names = append(names, podName{pods[i].Pod.Namespace, pods[i].Pod.Name})
	}
	i, err := pick(names, arg)
	if err != nil {
		return nil, err
	}
	return &pods[i], nil
}

func ending(p local.Pod) int {
	if p.WorkerState == workerTerminating || p.WorkerState == "terminated" {
		return 1
	}
	return 0
}
