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

// Tasks asks containerd for the processes of containers. It may be used by
// several at once, and holds no connection between calls: they are rare.
type Tasks struct {
	path string
	proc string // the kernel's list of processes
	// patience is how long a process's command line is waited for, and readers
	// how many are read.
	patience time.Duration
	readers  atomic.Int32
}

// NewTasks takes the socket as New does, and connects to nothing.
func NewTasks(endpoint string) (*Tasks, error) {
	path, err := socketPath(endpoint)
	return &Tasks{path: path, proc: "/proc", patience: 2 * time.Second}, err
}

// Ended says whether a container's task has stopped, or is gone. It blocks
// for as long as containerd asks the shim, or until ctx ends.
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
		return false, wrap(ctx, err, "ask for the task of container %q", containerID)
	}
	process, err := field(answer, 1, protowire.BytesType)
	if err != nil {
		return false, fmt.Errorf("ask for the task of container %q: %w", containerID, err)
	}
	value, err := field(inner(process), 4, protowire.VarintType)
	if err != nil {
		return false, fmt.Errorf("ask for the task of container %q: %w", containerID, err)
	}
	state, _ := protowire.ConsumeVarint(value)
	return state == taskStopped, nil
}
