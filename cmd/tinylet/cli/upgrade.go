package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/tinylet/tinylet/agent/preflight"
	"github.com/tinylet/tinylet/agent/server/local"
	"github.com/tinylet/tinylet/agent/store/upgrade"
)

// Limits of an upgrade.
const (
	selfCheckLimit = 2 * time.Minute  // of each run of a binary that is asked about itself
	upgradeLimit   = 20 * time.Minute // of the trial: two starts of at most 5 minutes, and restarts
	upgradePoll    = 2 * time.Second
	maxOutput      = 1 << 20 // bytes of a binary's output
)

func (s *system) upgrade() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "upgrade FILE",
		Short: "Replace the agent's binary, and return to the former one if the new one fails",
		Long: "Replace the agent's binary with FILE and restart the agent; no container restarts.\n" +
			"The agent must run under systemd or the supervisor of the board images, which\n" +
			"start it again.\n\n" +
			"FILE checks the node first, with the arguments of the running agent. It is not\n" +
			"installed if it finds a failure that the present binary does not find. After the\n" +
			"restart it is on trial: if the agent is not healthy within 5 minutes, two times,\n" +
			"the former binary takes its place again. The command waits for the result.\n\n" +
			"On Debian, upgrade the package instead, which does the same.",
		Example: `  # Upgrade the agent.
  tinylet upgrade /tmp/tinylet-0.2.0-arm64`,
		Args: cobra.ExactArgs(1),
	}
	socket := addSocket(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		u := upgrader{files: upgrade.System, client: local.NewClient(*socket), out: cmd.OutOrStdout(), poll: upgradePoll}
		return u.run(cmd.Context(), args[0])
	}
	return command(cmd)
}

// packageFile is a file of the Debian package alone.
const packageFile = "/usr/share/doc/tinylet/changelog.gz"

type upgrader struct {
	files  upgrade.Files
	client *local.Client
	out    io.Writer
	poll   time.Duration // interval at which the result is read
}

func (u *upgrader) run(ctx context.Context, file string) error {
	if _, err := os.Lstat(packageFile); err == nil {
		return errors.New("the Debian package owns the agent's binary; upgrade the package with apt-get or dpkg")
	}
	if u.files.OnTrial() {
		return errors.New("another binary is on trial; wait until it is confirmed or undone, see 'tinylet status'")
	}
	before, err := u.client.Status(ctx)
	if err != nil {
		return err
	}
	next, err := versionOf(ctx, file)
	if err != nil {
		return err
	}
	fmt.Fprintf(u.out, "checking this node with %s\n", next.KubeletVersion)
	if err := u.selfCheck(ctx, file, before.PID); err != nil {
		return err
	}
	if err := u.files.Replace(file); errors.Is(err, syscall.EROFS) {
		return fmt.Errorf("%w; an update of the image updates the agent", err)
	} else if err != nil {
		return err
	}
	fmt.Fprintf(u.out, "installed %s in place of %s, restarting the agent\n", next.KubeletVersion, before.Kubelet)
	if err := syscall.Kill(before.PID, syscall.SIGTERM); err != nil {
		return fmt.Errorf("restart the agent: %w", err)
	}
	return u.wait(ctx, before.PID)
}

// versionOf asks a binary for its version, and returns an error unless it is a tinylet for
// this system.
func versionOf(ctx context.Context, file string) (VersionDocument, error) {
	var d VersionDocument
	out, _, err := ask(ctx, file, "version", "-o", "json")
	if err == nil {
		err = json.Unmarshal(out, &d)
	}
	if err == nil && (d.KubeletVersion == "" || d.Platform != runtime.GOOS+"/"+runtime.GOARCH) {
		err = fmt.Errorf("it is for %q, and this system is %s/%s", d.Platform, runtime.GOOS, runtime.GOARCH)
	}
	if err != nil {
		return d, fmt.Errorf("%s is no tinylet that runs on this system: %w", file, err)
	}
	return d, nil
}

// selfCheck has both binaries check the node with the agent's arguments, and returns an
// error for each failure that only the new one finds.
func (u *upgrader) selfCheck(ctx context.Context, file string, pid int) error {
	line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	if err != nil {
		return fmt.Errorf("read the agent's arguments: %w", err)
	}
	args := append([]string{"check", "-o", "json"}, strings.Split(strings.TrimRight(string(line), "\x00"), "\x00")[1:]...)
	now, err := failures(ctx, u.files.Program, args)
	if err != nil {
		return err
	}
	then, err := failures(ctx, file, args)
	if err != nil {
		return err
	}
	var errs []error
	for _, f := range then {
		if !slices.ContainsFunc(now, func(g preflight.Finding) bool { return g.ID == f.ID }) {
			errs = append(errs, fmt.Errorf("%s: %s; %s", f.ID, f.What, f.Remedy))
		}
	}
	if len(errs) > 0 {
		return fmt.Errorf("nothing was installed: the new binary finds what would keep this node from working: %w", errors.Join(errs...))
	}
	return nil
}

// failures returns the findings of a binary's check that prevent the node from working.
func failures(ctx context.Context, binary string, args []string) ([]preflight.Finding, error) {
	out, text, err := ask(ctx, binary, args...)
	var d CheckDocument
	if jsonErr := json.Unmarshal(out, &d); jsonErr != nil {
		return nil, fmt.Errorf("nothing was installed: the check of %s fails: %w: %s", binary, errors.Join(err, jsonErr), text)
	}
	return slices.DeleteFunc(d.Findings, func(f preflight.Finding) bool { return f.Level != preflight.Fail }), nil
}

// ask runs a binary for at most selfCheckLimit.
func ask(ctx context.Context, binary string, args ...string) (out []byte, text string, err error) {
	ctx, cancel := context.WithTimeout(ctx, selfCheckLimit)
	defer cancel()
	cmd := exec.CommandContext(ctx, binary, args...)
	var stdout, stderr limited
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	cmd.WaitDelay = time.Second // a process that it started may keep the pipes open
	err = cmd.Run()
	return stdout.kept, OneLine(errors.New(string(stderr.kept))), err
}

// limited keeps the first maxOutput bytes that are written to it.
type limited struct{ kept []byte }

func (l *limited) Write(p []byte) (int, error) {
	l.kept = append(l.kept, p[:min(len(p), maxOutput-len(l.kept))]...)
	return len(p), nil
}

// wait waits until the binary is confirmed or undone.
func (u *upgrader) wait(ctx context.Context, former int) error {
	ctx, cancel := context.WithTimeoutCause(ctx, upgradeLimit, fmt.Errorf("the new binary is neither confirmed nor undone after %v; see 'tinylet status' and the agent's log", upgradeLimit))
	defer cancel()
	pid := former
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(u.poll):
		}
		if status, err := u.client.Status(ctx); err == nil && status.PID != pid {
			pid = status.PID
			fmt.Fprintf(u.out, "%s runs as process %d\n", status.Kubelet, pid)
		}
		switch {
		case u.files.OnTrial():
		case u.files.Undone() != "":
			return errors.New(u.files.Undone() + "; see the agent's log")
		default:
			_, err := fmt.Fprintln(u.out, "confirmed: the agent has been healthy")
			return err
		}
	}
}
