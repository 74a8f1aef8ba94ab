package oci

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// ErrGone means that a process has ended.
var ErrGone = errors.New("the process has ended")

// Process identifies a process until the next boot.
type Process struct {
	PID int `json:"pid"`
	// StartTime is in clock ticks since the boot, as in /proc/PID/stat.
	StartTime uint64 `json:"startTime"`
}

// FindProcess returns a process and its parent, or ErrGone.
func FindProcess(pid int) (p Process, parent int, err error) {
	data, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ESRCH) {
		return Process{}, 0, fmt.Errorf("process %d: %w", pid, ErrGone)
	}
	if err != nil {
		return Process{}, 0, fmt.Errorf("process %d: %w", pid, err)
	}
	// The second field has the program's name in parentheses, which may have any character
	// (proc_pid_stat(5)).
	text := string(data)
	fields := strings.Fields(text[strings.LastIndexByte(text, ')')+1:])
	const parentField, startField = 1, 19 // from the state, which is field 3
	if len(fields) <= startField {
		return Process{}, 0, fmt.Errorf("unexpected content of /proc/%d/stat", pid)
	}
	parent, err = strconv.Atoi(fields[parentField])
	if err != nil {
		return Process{}, 0, fmt.Errorf("parent of process %d: %w", pid, err)
	}
	start, err := strconv.ParseUint(fields[startField], 10, 64)
	if err != nil {
		return Process{}, 0, fmt.Errorf("start time of process %d: %w", pid, err)
	}
	return Process{pid, start}, parent, nil
}

// Open returns a pidfd of the process, or ErrGone.
func (p Process) Open() (pidfd int, err error) {
	pidfd, err = unix.PidfdOpen(p.PID, 0)
	if errors.Is(err, unix.ESRCH) {
		return -1, fmt.Errorf("process %d: %w", p.PID, ErrGone)
	}
	if err != nil {
		return -1, fmt.Errorf("open process %d: %w", p.PID, err)
	}
	found, _, err := FindProcess(p.PID)
	if err == nil && found != p {
		err = fmt.Errorf("process %d: %w", p.PID, ErrGone) // another one has its PID
	}
	if err != nil {
		_ = unix.Close(pidfd)
		return -1, err
	}
	return pidfd, nil
}

// Kill sends SIGKILL to the process. It returns nil if the process has ended.
func (p Process) Kill() error { return p.Signal(unix.SIGKILL) }

// Signal sends a signal to the process. It returns nil if the process has ended.
func (p Process) Signal(s unix.Signal) error {
	fd, err := p.Open()
	if errors.Is(err, ErrGone) {
		return nil
	}
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(fd) }()
	if err := unix.PidfdSendSignal(fd, s, nil, 0); err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("send signal %d to process %d: %w", s, p.PID, err)
	}
	return nil
}
