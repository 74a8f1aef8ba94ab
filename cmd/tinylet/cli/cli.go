// Package cli implements the commands of tinylet: ps, describe, logs, exec,
// events, top, status, net, metrics, drain-local, check, kernel-args, join, version,
// journal-key and upgrade. Most call the running agent on its socket and print tables
// or, with -o json, JSON documents. net, check, kernel-args, join, version and
// journal-key do not call the agent. logs also works without it.
//
// The types of the JSON documents have names that end in Document. join, top, status and
// journal-key --migrate print bootstrap.Result, local.Usage, local.Status and
// offline.Migrated. Fields may be added to all of them, and are never renamed or removed.
package cli

import (
	"errors"
	"os"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/tinylet/tinylet/agent/config"
	"github.com/tinylet/tinylet/agent/container/podlogs"
	"github.com/tinylet/tinylet/agent/server/local"
	"github.com/tinylet/tinylet/agent/store/tpmkey"
)

// ExitError is an error with an exit code of the program. If Err is nil, nothing
// is printed.
type ExitError struct {
	Code int
	Err  error
}

func (e *ExitError) Error() string {
	if e.Err == nil {
		return ""
	}
	return e.Err.Error()
}

func (e *ExitError) Unwrap() error { return e.Err }

func (e *ExitError) ExitCode() int { return e.Code }

// Exit codes. All other errors have the code 1.
const (
	codeNoAgent     = 3   // the agent is not running or does not answer
	codeNotFound    = 4   // no pod, container or log matches, or more than one pod
	codeInterrupted = 130 // as a shell reports SIGINT
)

// Commands returns the commands. It opens and reads nothing.
func Commands() []*cobra.Command {
	s := &system{
		now:     time.Now,
		uptime:  uptime,
		logRoot: podlogs.Root,
		root:    "/",
		tpm:     tpmkey.Device,
		stdin:   os.Stdin,
		uid:     os.Geteuid,
	}
	return s.commands()
}

func (s *system) commands() []*cobra.Command {
	return []*cobra.Command{s.ps(), s.describe(), s.logs(), s.exec(), s.events(), s.top(), s.status(), s.net(), s.metrics(), s.drainLocal(), s.check(), s.kernelArgs(), s.join(), s.journalKey(), s.provision(), s.upgrade(), s.version()}
}

// system has what the commands use of the operating system. Tests replace it.
type system struct {
	now     func() time.Time
	uptime  func() time.Duration // 0 is unknown
	logRoot string               // directory of the pod logs
	root    string               // root of the file system of check, net and journal-key
	tpm     string               // path of the TPM device
	stdin   *os.File
	uid     func() int // effective user ID
}

// uptime returns the time since the boot, with the time in which the board was
// suspended. It returns 0 if it is unknown.
func uptime() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		return 0
	}
	return time.Duration(ts.Nano())
}

// addSocket adds the flag for the path of the agent's socket.
func addSocket(cmd *cobra.Command) *string {
	return cmd.Flags().String("socket", config.DefaultSocketPath, "`path` of the agent's socket")
}

// command sets the common properties of all commands, and adds the exit code to their
// errors. An error of a command whose context has ended is not printed.
func command(cmd *cobra.Command) *cobra.Command {
	cmd.SilenceUsage, cmd.SilenceErrors, cmd.DisableFlagsInUseLine = true, true, true
	run := cmd.RunE
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		err := run(cmd, args)
		switch {
		case err != nil && cmd.Context().Err() != nil:
			return &ExitError{Code: codeInterrupted}
		case errors.Is(err, syscall.EPIPE):
			return nil // the reader of the output may stop at any time
		case errors.Is(err, local.ErrNotRunning), errors.Is(err, local.ErrNoResponse):
			return &ExitError{Code: codeNoAgent, Err: err}
		}
		return err
	}
	return cmd
}
