// Package cli is the commands of someone at the board: ps, describe, logs,
// exec, events, top, status, net, metrics, drain-local, check, join, version and
// journal-key. They ask the running agent over its socket and print tables for
// people or, with -o json, documents for programs; logs, net, check, join,
// version and journal-key work without an agent too.
//
// The JSON documents are the types whose names end in Document. Fields are
// added to them, never renamed or removed.
package cli

import (
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/tinylet/tinylet/agent/container/podlogs"
	"github.com/tinylet/tinylet/agent/server/local"
	"github.com/tinylet/tinylet/agent/store/tpmkey"
)

// ExitError ends the program with a code. Err is to be printed; nil prints
// nothing.
type ExitError struct {
	Code int
	Err  error
}

// Error is Err's text, or "".
func (e *ExitError) Error() string {
	if e.Err == nil {
		return ""
	}
	return e.Err.Error()
}

// Unwrap gives Err to errors.Is.
func (e *ExitError) Unwrap() error { return e.Err }

// ExitCode is Code.
func (e *ExitError) ExitCode() int { return e.Code }

// Exit codes. 1 is every other error.
const (
	codeNoAgent     = 3   // the agent does not run or does not answer
	codeNotFound    = 4   // there is no such pod, or more than one
	codeInterrupted = 130 // as a shell reports an interrupt
)

// Commands makes the commands. It opens and reads nothing.
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
	return []*cobra.Command{s.ps(), s.describe(), s.logs(), s.exec(), s.events(), s.top(), s.status(), s.net(), s.metrics(), s.drainLocal(), s.check(), s.join(), s.journalKey(), s.version()}
}

// system is what the commands take from around them.
type system struct {
	now     func() time.Time
	uptime  func() time.Duration // 0 where it is not known
	logRoot string
	root    string // of the file system that check and net look at
	tpm     string // that seals keys
	stdin   *os.File
	uid     func() int // the caller's
}

// uptime counts the time that the board slept, too.
func uptime() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		return 0
	}
	return time.Duration(ts.Nano())
}

// addSocket adds the flag that says where the agent answers.
func addSocket(cmd *cobra.Command) *string {
	return cmd.Flags().String("socket", local.DefaultSocketPath, "`path` of the agent's socket")
}

// output is the value of -o.
type output string

const (
	outputTable output = "table"
	outputJSON  output = "json"
)

func (o *output) String() string { return string(*o) }
func (o *output) Type() string   { return "form" }

func (o *output) Set(s string) error {
	switch output(s) {
	case outputTable, outputJSON:
		*o = output(s)
		return nil
	}
	return errors.New("it must be table or json")
}

func addOutput(cmd *cobra.Command) *output {
	o := outputTable
	cmd.Flags().VarP(&o, "output", "o", "`form` of the output: table for people, json for programs")
	return &o
}

// command sets what all commands have in common.
func command(cmd *cobra.Command) *cobra.Command {
	cmd.SilenceUsage, cmd.SilenceErrors, cmd.DisableFlagsInUseLine = true, true, true
	cmd.Flags().SortFlags = true
	cmd.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return fmt.Errorf("%w; see '%s --help'", err, cmd.CommandPath())
	})
	run := cmd.RunE
	cmd.RunE = func(cmd *cobra.Command, args []string) error { return coded(run(cmd, args)) }
	return cmd
}

// coded gives errors their exit codes. Who reads the output may stop reading
// at any time: that is no error.
func coded(err error) error {
	var e *ExitError
	switch {
	case err == nil, errors.Is(err, syscall.EPIPE):
		return nil
	case errors.As(err, &e):
		return err
	case errors.Is(err, local.ErrNotRunning), errors.Is(err, local.ErrNoResponse):
		return &ExitError{Code: codeNoAgent, Err: err}
	}
	return err
}
