// Package oci runs an OCI runtime program such as crun or runc: its command line, the
// terminals that it hands over, its pid files, its log, and commands in running containers.
// The keeper is the parent of containers; commands in them are children of the agent.
//
// github.com/containerd/go-runc has the same command lines. It copies the output of each
// command through goroutines of its own, reaps through a global monitor, and keeps a command
// that the context ends waiting for its output.
package oci

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"

	"github.com/tinylet/tinylet/agent/store/atomicfile"
)

// ErrFailed means that the program failed. The error has its message.
var ErrFailed = errors.New("OCI runtime failed")

// Program is an OCI runtime program with its global options, such as
// ["/usr/bin/crun", "--root=/run/tinylet/oci"].
type Program []string

// Valid returns an error unless the first element is an absolute path.
func (p Program) Valid() error {
	if len(p) == 0 || p[0] == "" || p[0][0] != '/' {
		return fmt.Errorf("the path of the OCI runtime %q is not absolute", []string(p))
	}
	return nil
}

// Run returns the command line that creates and starts a container, and returns when it
// runs. consoleSocket is empty without a terminal.
func (p Program) Run(id, bundle, pidFile, logFile, consoleSocket string) []string {
	return p.command(logFile, "run", []string{"--detach", "--bundle=" + bundle}, pidFile, consoleSocket, id)
}

// Exec returns the command line that runs the process of a file with its JSON document in a
// container, and exits with its exit code. With a terminal and no console socket, the program
// copies between its own terminal and that of the process: runc takes no console socket for a
// command that it waits for.
func (p Program) Exec(id, process, pidFile, logFile, consoleSocket string, terminal bool) []string {
	options := []string{"--process=" + process}
	if terminal {
		options = append(options, "--tty")
	}
	return p.command(logFile, "exec", options, pidFile, consoleSocket, id)
}

// Delete returns the command line that kills and deletes a container.
func (p Program) Delete(id string) []string {
	return append(append([]string{}, p...), "delete", "--force", id)
}

// Update returns the command line that sets the resources in a file with their JSON document
// (linux.resources in the OCI specification) for a running container.
func (p Program) Update(id, resources string) []string {
	return append(append([]string{}, p...), "update", "--resources="+resources, id)
}

func (p Program) command(logFile, name string, options []string, pidFile, consoleSocket, id string) []string {
	out := append([]string{}, p...)
	out = append(out, "--log="+logFile, name)
	out = append(out, options...)
	out = append(out, "--pid-file="+pidFile)
	if consoleSocket != "" {
		out = append(out, "--console-socket="+consoleSocket)
	}
	return append(out, id)
}

const (
	// maxLog bounds what is read of the log of the program, in bytes.
	maxLog = 16 << 10
	// maxMessage bounds a message of the program in an error, in bytes.
	maxMessage = 4 << 10
)

// LastMessage returns the end of the log of the program.
func LastMessage(logFile string) string {
	const none = "it has logged nothing"
	f, err := os.Open(logFile)
	if err != nil {
		return none
	}
	defer func() { _ = f.Close() }()
	data := make([]byte, maxLog)
	begin := int64(0)
	if info, err := f.Stat(); err == nil {
		begin = max(0, info.Size()-maxLog)
	}
	n, _ := f.ReadAt(data, begin) // io.EOF with what there is
	text := strings.TrimSpace(string(data[:n]))
	if text == "" {
		return none
	}
	return text[max(0, len(text)-maxMessage):]
}

// ReadPID reads a pid file. It returns ErrFailed if the program has not written it.
func ReadPID(path string) (int, error) {
	data, err := atomicfile.Read(path, 32)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, fmt.Errorf("%w: it has written no pid file", ErrFailed)
	}
	if err != nil {
		return 0, fmt.Errorf("read pid file: %w", err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(data)))
	if err != nil || pid <= 1 {
		return 0, fmt.Errorf("%w: its pid file has %q", ErrFailed, data)
	}
	return pid, nil
}
