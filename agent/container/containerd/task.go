package containerd

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
)

// taskStopped is task.Status STOPPED (api/types/task/task.proto).
const taskStopped = 3

// Tasks is a client of containerd's task service. It is safe for concurrent use. It has
// no connection between calls, because they are rare.
type Tasks struct {
	path string
	proc string // mount point of procfs
	// patience limits the read of a process's command line. readers is the number
	// of reads in progress.
	patience time.Duration
	readers  atomic.Int32
}

// NewTasks returns Tasks for a socket endpoint, in the same form as in New. It does not
// connect.
func NewTasks(endpoint string) (*Tasks, error) {
	path, err := socketPath(endpoint)
	return &Tasks{path: path, proc: "/proc", patience: 2 * time.Second}, err
}

// Ended reports whether a container's task has stopped or does not exist. It blocks
// until containerd has the state from the shim, or until ctx ends.
func (t *Tasks) Ended(ctx context.Context, containerID string) (bool, error) {
	conn, err := dial(t.path)
	if err != nil {
		return false, err
	}
	defer conn.Close()
	var request, answer message // tasks.GetRequest, tasks.GetResponse
	request.text(1, containerID)
	err = invoke(ctx, conn, "tasks.v1.Tasks/Get", request, &answer)
	if status.Code(err) == codes.NotFound {
		return true, nil
	}
	if err != nil {
		return false, wrap(ctx, err, "get task of container %q", containerID)
	}
	process, err := field(answer, 1, protowire.BytesType)
	if err != nil {
		return false, fmt.Errorf("get task of container %q: %w", containerID, err)
	}
	value, err := field(inner(process), 4, protowire.VarintType)
	if err != nil {
		return false, fmt.Errorf("get task of container %q: %w", containerID, err)
	}
	state, _ := protowire.ConsumeVarint(value)
	return state == taskStopped, nil
}
