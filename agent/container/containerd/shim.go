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

	"golang.org/x/sys/unix"
)

// shimProgram is the shim of runc and crun. Those of other runtimes, such as
// virtual machines, are left alone.
const shimProgram = "containerd-shim-runc-v2"

// maxCommandLine is more than a shim's has.
const maxCommandLine = 4 << 10

// EndShim kills the shim of a sandbox, and says whether there was one. It
// serves all the sandbox's containers: containerd notices its end and takes
// down what is left of them.
//
// A process of a container that pretends to be that shim is killed too.
func (t *Tasks) EndShim(sandboxID string) (bool, error) {
	if sandboxID == "" {
		return false, nil
	}
	entries, err := os.ReadDir(t.proc)
	if err != nil {
		return false, fmt.Errorf("look for the shim of sandbox %q: %w", sandboxID, err)
	}
	found := false
	var errs []error
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		was, err := t.endIfShim(pid, sandboxID)
		found = found || was
		errs = append(errs, err)
	}
	if err := errors.Join(errs...); err != nil {
		return found, fmt.Errorf("end the shim of sandbox %q: %w", sandboxID, err)
	}
	return found, nil
}

func (t *Tasks) endIfShim(pid int, sandboxID string) (bool, error) {
	process, err := os.FindProcess(pid) // before its name is read: the number may be another's soon
	if err != nil {
		return false, fmt.Errorf("open process %d: %w", pid, err)
	}
	defer process.Release() //nolint:errcheck // nothing was waited for
	line, err := commandLine(filepath.Join(t.proc, strconv.Itoa(pid), "cmdline"))
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

func commandLine(file string) ([]byte, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	line, err := io.ReadAll(io.LimitReader(f, maxCommandLine))
	if errors.Is(err, unix.ESRCH) { // it has ended since
		return nil, fs.ErrNotExist
	}
	return line, err
}

// isShim says whether a command line is that of a sandbox's shim, such as
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
