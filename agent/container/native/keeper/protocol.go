package keeper

import (
	"errors"
	"fmt"
	"regexp"
	"sync"

	"github.com/tinylet/tinylet/agent/container/native/oci"
)

// Protocol is the version of the protocol. A keeper of another version is replaced with
// Client.Upgrade, which all versions have.
const Protocol = 1

// maxPacket bounds a packet in bytes. The kernel's default buffer of a socket has 208 KiB.
const maxPacket = 64 << 10

// maxContainers bounds the containers of a node.
const maxContainers = 1024

// Errors of the keeper, for errors.Is.
var (
	// ErrExists means that the keeper has a container of the ID.
	ErrExists = errors.New("the container exists")
	// ErrNotFound means that the keeper has no container of the ID.
	ErrNotFound = errors.New("no such container")
	// ErrNotRunning means that the container has exited or is not started yet.
	ErrNotRunning = errors.New("the container does not run")
	// ErrInvalid means that the request is not valid.
	ErrInvalid = errors.New("invalid request")
	// ErrBusy means that a limit is reached or that the keeper is about to be replaced.
	ErrBusy = errors.New("the keeper is busy")
)

// kinds are the errors that cross the socket, by name.
var kinds = map[string]error{
	"exists": ErrExists, "notFound": ErrNotFound, "notRunning": ErrNotRunning, "runtime": oci.ErrFailed, "invalid": ErrInvalid, "busy": ErrBusy,
}

// Start describes a container to start.
type Start struct {
	// ID names the container: 1 to 128 of the characters a-z, A-Z, 0-9, _, . and -, the
	// first of which is a letter or a digit.
	ID string `json:"id"`
	// Program is the OCI runtime program.
	Program oci.Program `json:"program"`
	// Bundle is the directory with config.json.
	Bundle string `json:"bundle"`
	// LogPath is the file that gets the output. If it is empty, the output is dropped.
	LogPath string `json:"logPath,omitempty"`
	// Stdin gives the container a standard input that clients can write to. Otherwise it
	// is /dev/null.
	Stdin bool `json:"stdin,omitempty"`
	// Terminal must equal process.terminal in config.json.
	Terminal bool `json:"terminal,omitempty"`
	// TimeoutSeconds limits the run of the program, hooks included; 0 means two minutes.
	TimeoutSeconds int `json:"timeoutSeconds,omitempty"`
}

// Phases of a container.
const (
	// PhaseStarting is a container for which the OCI runtime program runs.
	PhaseStarting = "starting"
	// PhaseInterrupted is a container for which the program ran when the keeper died. The
	// container may run. The client must delete it with the program, and acknowledge it.
	PhaseInterrupted = "interrupted"
	PhaseRunning     = "running"
	PhaseExited      = "exited"
)

// Container is the state of a container.
type Container struct {
	ID      string `json:"id"`
	Phase   string `json:"phase"`
	LogPath string `json:"logPath,omitempty"`
	// PID and StartTime identify the first process. StartTime is in clock ticks since the
	// boot, as in /proc/PID/stat.
	PID       int    `json:"pid,omitempty"`
	StartTime uint64 `json:"startTime,omitempty"`
	// StartedAt and FinishedAt are in nanoseconds since 1970.
	StartedAt  int64 `json:"startedAt,omitempty"`
	FinishedAt int64 `json:"finishedAt,omitempty"`
	// ExitCode is that of the first process, or 128 and the signal that ended it. It is
	// valid if CodeKnown is set: no keeper may have seen the end of the process.
	ExitCode  int32 `json:"exitCode,omitempty"`
	CodeKnown bool  `json:"codeKnown,omitempty"`
	// Dropped counts the bytes of output that could not be written to the log.
	Dropped  uint64 `json:"dropped,omitempty"`
	Stdin    bool   `json:"stdin,omitempty"`
	Terminal bool   `json:"terminal,omitempty"`
}

// Hello is what a keeper says of itself.
type Hello struct {
	Protocol int    `json:"protocol"`
	Build    string `json:"build"`
	PID      int    `json:"pid"`
}

// Operations of requests.
const (
	opHello      = "hello"
	opStart      = "start"
	opList       = "list"
	opAck        = "ack"
	opReopen     = "reopen"
	opAttach     = "attach"
	opCloseStdin = "closeStdin"
	opResize     = "resize"
	opWatch      = "watch"
	opUpgrade    = "upgrade"
)

// request is a packet of a client. The descriptors of attach are those of the client for
// standard output and error; that of upgrade is the new program.
type request struct {
	Op    string    `json:"op"`
	ID    string    `json:"id,omitempty"`
	Start *Start    `json:"start,omitempty"`
	Size  *oci.Size `json:"size,omitempty"`
	// After is the ID that the page of a list begins after.
	After string `json:"after,omitempty"`
	// Stdout and Stderr say which descriptors come with attach, in this order.
	Stdout bool `json:"stdout,omitempty"`
	Stderr bool `json:"stderr,omitempty"`
}

// response is a packet of the keeper. That to attach comes with the descriptor of the
// terminal, or else with that of the standard input, if the container has one.
type response struct {
	Kind       string      `json:"kind,omitempty"` // of the error
	Message    string      `json:"message,omitempty"`
	Hello      *Hello      `json:"hello,omitempty"`
	Container  *Container  `json:"container,omitempty"`
	Containers []Container `json:"containers,omitempty"`
	More       bool        `json:"more,omitempty"`
}

// maxMessage bounds the text of an error in bytes.
const maxMessage = 8 << 10

// failure is the response to a failed request.
func failure(err error) response {
	r := response{Kind: "other", Message: err.Error()}
	for kind, known := range kinds {
		if errors.Is(err, known) {
			r.Kind = kind
		}
	}
	r.Message = r.Message[:min(len(r.Message), maxMessage)]
	return r
}

// err is the error of the response.
func (r *response) err() error {
	if r.Kind == "" {
		return nil
	}
	if known := kinds[r.Kind]; known != nil {
		return &remoteError{known, r.Message}
	}
	return errors.New(r.Message)
}

// remoteError is an error of the keeper at its client.
type remoteError struct {
	kind error
	text string
}

func (e *remoteError) Error() string { return e.text }

func (e *remoteError) Unwrap() error { return e.kind }

var idPattern = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[a-zA-Z0-9][a-zA-Z0-9_.-]{0,127}$`) })

func (s *Start) validate() error {
	switch {
	case !idPattern().MatchString(s.ID):
		return fmt.Errorf("%w: container ID %q", ErrInvalid, s.ID)
	case s.Program.Valid() != nil:
		return fmt.Errorf("%w: %w", ErrInvalid, s.Program.Valid())
	case s.Bundle == "" || s.Bundle[0] != '/':
		return fmt.Errorf("%w: the path of the bundle %q is not absolute", ErrInvalid, s.Bundle)
	case s.LogPath != "" && s.LogPath[0] != '/':
		return fmt.Errorf("%w: the path of the log %q is not absolute", ErrInvalid, s.LogPath)
	case s.TimeoutSeconds < 0:
		return fmt.Errorf("%w: timeout of %d s", ErrInvalid, s.TimeoutSeconds)
	}
	return nil
}
