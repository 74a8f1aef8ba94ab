package containerd

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// shimProgram is the shim of runc and crun. The shims of other runtimes, such as
// virtual machines, are not handled.
const shimProgram = "containerd-shim-runc-v2"

// maxCommandLine limits the bytes that are read of a command line. That of a shim is
// shorter.
const maxCommandLine = 4 << 10

// EndShim kills the shim of a sandbox, and reports whether there was one. The shim serves
// all containers of the sandbox. containerd detects its exit and cleans up.
//
// A container process that imitates the shim is killed too.
func (t *Tasks) EndShim(sandboxID string) (bool, error) {
	if sandboxID == "" {
		return false, nil
	}
	entries, err := os.ReadDir(t.proc)
	if err != nil {
		return false, fmt.Errorf("find shim of sandbox %q: %w", sandboxID, err)
	}
	found := false
	var errs []error
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		was, err := t.killIfShim(pid, sandboxID)
		found = found || was
		errs = append(errs, err)
	}
	if err := errors.Join(errs...); err != nil {
		return found, fmt.Errorf("kill shim of sandbox %q: %w", sandboxID, err)
	}
	return found, nil
}

func (t *Tasks) killIfShim(pid int, sandboxID string) (bool, error) {
	process, err := os.FindProcess(pid) // before its name is read, because the PID may be reused
	if err != nil {
		return false, fmt.Errorf("open process %d: %w", pid, err)
	}
	defer process.Release() //nolint:errcheck // the process was not waited for
	line, err := t.commandLine(pid)
	if errors.Is(err, fs.ErrNotExist) || err == nil && !isShim(line, sandboxID) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	if err := process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return true, fmt.Errorf("kill process %d: %w", pid, err)
	}
	return true, nil
}

// maxReaders limits the concurrent reads of command lines: each one that hangs blocks
// a thread.
const maxReaders = 8

// commandLine returns the command line of a process, or fs.ErrNotExist if the process does
// not exist, is a kernel thread or cannot be a shim.
//
// The kernel reads a command line from the memory of the process. A container with a
// FUSE file system can make that block forever. So commandLine only reads the command
// lines of processes whose program has a shim's name, in a separate goroutine, and
// after a timeout treats the process as not a shim.
func (t *Tasks) commandLine(pid int) ([]byte, error) {
	dir := filepath.Join(t.proc, strconv.Itoa(pid))
	program, err := os.Readlink(filepath.Join(dir, "exe"))
	if errors.Is(err, unix.ESRCH) || err == nil && path.Base(strings.TrimSuffix(program, " (deleted)")) != shimProgram {
		return nil, fs.ErrNotExist
	}
	if err != nil && !errors.Is(err, fs.ErrPermission) { // without CAP_SYS_PTRACE only the command line can be read
		return nil, err
	}
	if t.readers.Add(1) > maxReaders {
		t.readers.Add(-1)
		return nil, fmt.Errorf("read command line of process %d: %w", pid, errReaders)
	}
	type answer struct {
		line []byte
		err  error
	}
	got := make(chan answer, 1)
	go func() {
		defer t.readers.Add(-1)
		line, err := readLine(filepath.Join(dir, "cmdline"))
		got <- answer{line, err}
	}()
	timer := time.NewTimer(t.readTimeout)
	defer timer.Stop()
	select {
	case a := <-got:
		return a.line, a.err
	case <-timer.C:
		return nil, fs.ErrNotExist
	}
}

var errReaders = errors.New("too many earlier reads hang: kill the processes that imitate a shim")

func readLine(file string) ([]byte, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	line, err := io.ReadAll(io.LimitReader(f, maxCommandLine))
	if errors.Is(err, unix.ESRCH) { // the process has ended meanwhile
		return nil, fs.ErrNotExist
	}
	return line, err
}

// isShim reports whether a command line is that of a sandbox's shim, such as
// /usr/bin/containerd-shim-runc-v2 -namespace k8s.io -id ID -address SOCKET.
func isShim(line []byte, sandboxID string) bool {
	words := bytes.Split(line, []byte{0})
	return path.Base(string(words[0])) == shimProgram &&
		follows(words, "-namespace", namespace) && follows(words, "-id", sandboxID)
}

func follows(words [][]byte, flag, value string) bool {
	i := slices.IndexFunc(words, func(w []byte) bool { return string(w) == flag })
	return i >= 0 && i+1 < len(words) && string(words[i+1]) == value
}
