// Package upgrade keeps the former binary of the agent until the new one has shown that it
// works. A new binary is on trial from its installation until the agent confirms it. If
// the agent ends twice before that, the former binary takes its place again.
//
// A binary that does not work cannot undo its installation. So the script
// usr/libexec/tinylet/trial, which runs before each start of the agent, counts the starts
// and puts the former binary back. It uses the files of this package. A package manager
// that replaces the binary makes the same files.
package upgrade

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/tinylet/tinylet/agent/store/atomicfile"
)

// Files are the files of an upgrade.
type Files struct {
	// Dir has the file trial, while a binary is on trial, which contains the number of its
	// starts, and the file undone, which says why the last upgrade was undone.
	Dir string
	// Program is the path of the agent's binary, and Former that of the one before it.
	// They are in the same file system.
	Program, Former string
	// Running is the file that this process runs.
	Running string
}

// System are the files of a system. The script trial has the same paths.
var System = Files{
	Dir:     "/var/lib/tinylet/upgrade",
	Program: "/usr/bin/tinylet",
	Former:  "/usr/libexec/tinylet/former",
	Running: "/proc/self/exe",
}

// ErrReplaced means that Program is not the binary that this process runs.
var ErrReplaced = errors.New("another binary was installed since the start")

func (f Files) trial() string  { return filepath.Join(f.Dir, "trial") }
func (f Files) undone() string { return filepath.Join(f.Dir, "undone") }

// OnTrial reports whether the binary is on trial.
func (f Files) OnTrial() bool {
	_, err := os.Lstat(f.trial())
	return err == nil
}

// Undone returns why the last upgrade was undone, or "" if it was not.
func (f Files) Undone() string {
	text, err := atomicfile.Read(f.undone(), 4096)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(text))
}

// Replace puts the binary in the file next in the place of Program, and on trial. After a
// crash or an error Program is the former binary or the new one, complete, and the new one
// is on trial.
func (f Files) Replace(next string) error {
	fresh := f.Program + atomicfile.Suffix
	if err := copyProgram(next, fresh); err != nil {
		return errors.Join(fmt.Errorf("copy new binary: %w", err), atomicfile.Remove(fresh))
	}
	if err := f.begin(); err != nil {
		return errors.Join(err, atomicfile.Remove(fresh))
	}
	if err := os.Rename(fresh, f.Program); err != nil {
		return errors.Join(fmt.Errorf("install new binary: %w", err), atomicfile.Remove(fresh))
	}
	return atomicfile.SyncDir(filepath.Dir(f.Program))
}

// begin keeps the present binary and starts a trial. If the present one is on trial
// itself, it keeps the one before.
func (f Files) begin() error {
	if _, err := os.Lstat(f.Former); err != nil || !f.OnTrial() {
		if err := f.keep(); err != nil {
			return fmt.Errorf("keep former binary: %w", err)
		}
	}
	if err := atomicfile.Remove(f.undone()); err != nil {
		return fmt.Errorf("begin trial: %w", err)
	}
	if err := atomicfile.Write(f.trial(), []byte("0\n"), 0o644); err != nil {
		return fmt.Errorf("begin trial: %w", err)
	}
	return nil
}

func (f Files) keep() error {
	if err := atomicfile.MkdirAll(filepath.Dir(f.Former), 0o755); err != nil {
		return err
	}
	if err := atomicfile.Remove(f.Former); err != nil {
		return err
	}
	if err := os.Link(f.Program, f.Former); err != nil {
		return err
	}
	return atomicfile.SyncDir(filepath.Dir(f.Former))
}

// Confirm ends the trial: the new binary stays, and the former one is deleted. It returns
// ErrReplaced if yet another binary was installed since this process started: that one is on
// trial then, and is confirmed by the process that runs it. Without a trial Confirm deletes
// what an interrupted one has left.
func (f Files) Confirm() error {
	if f.OnTrial() {
		running, err := os.Stat(f.Running)
		if err != nil {
			return fmt.Errorf("confirm upgrade: %w", err)
		}
		if program, err := os.Stat(f.Program); err != nil || !os.SameFile(running, program) {
			return errors.Join(ErrReplaced, err)
		}
		if err := atomicfile.Remove(f.trial()); err != nil {
			return fmt.Errorf("confirm upgrade: %w", err)
		}
		if err := atomicfile.SyncDir(f.Dir); err != nil {
			return fmt.Errorf("confirm upgrade: %w", err)
		}
	}
	// Before a trial begins, both are one file.
	former, errFormer := os.Lstat(f.Former)
	program, errProgram := os.Lstat(f.Program)
	if errFormer == nil && errProgram == nil && !os.SameFile(former, program) {
		if err := atomicfile.Remove(f.Former); err != nil {
			return fmt.Errorf("delete former binary: %w", err)
		}
	}
	return nil
}

// copyProgram copies a regular file to an executable one, and syncs it.
func copyProgram(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	if info, err := in.Stat(); err != nil || !info.Mode().IsRegular() {
		return errors.Join(fmt.Errorf("%s: %w: not a regular file", from, fs.ErrInvalid), err)
	}
	if err := atomicfile.Remove(to); err != nil {
		return err
	}
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o700)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	if err == nil {
		err = out.Chmod(0o755)
	}
	if err == nil {
		err = out.Sync()
	}
	return errors.Join(err, out.Close())
}
