package fake

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/tinylet/tinylet/agent/container"
)

// openLog opens the container's log file and writes the program's output to it,
// in the format that the kubelet reads. The caller holds the lock.
func (r *Runtime) openLog(p *process) error {
	if !r.writeLogs || p.status.LogPath == "" {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(p.status.LogPath), 0o755); err != nil {
		return err
	}
	f, err := openOutput(p.status.LogPath)
	if err != nil {
		return err
	}
	p.output = f
	for _, line := range p.program.Output {
		if err := p.print(line); err != nil {
			return err
		}
	}
	return nil
}

func openOutput(path string) (*os.File, error) {
	return os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o640)
}

// print writes a line to the log, if there is one, and to attached clients. The
// caller holds the lock.
func (p *process) print(line string) error {
	for follower := range p.attached {
		select {
		case follower <- line:
		default: // no test is this slow
		}
	}
	if p.output == nil {
		return nil
	}
	_, err := fmt.Fprintf(p.output, "%s stdout F %s\n", time.Now().Format(time.RFC3339Nano), line)
	return err
}

// Print makes a running container write a line to its log, if logs are written.
// It returns false if the container is not running.
func (r *Runtime) Print(containerID, line string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	p := r.containers[containerID]
	return p != nil && p.status.State == runtimeapi.ContainerState_CONTAINER_RUNNING && p.print(line) == nil
}

// ReopenContainerLog implements container.Containers.
func (r *Runtime) ReopenContainerLog(ctx context.Context, containerID string) error {
	return r.doLocked(ctx, "ReopenContainerLog", containerID, r.timeout, func() error {
		p := r.containers[containerID]
		switch {
		case p == nil:
			return container.ErrNotFound
		case p.status.State != runtimeapi.ContainerState_CONTAINER_RUNNING:
			return errors.New("container is not running")
		case !r.writeLogs || p.status.LogPath == "":
			return nil
		}
		f, err := openOutput(p.status.LogPath)
		if err != nil {
			return err
		}
		p.output.Close()
		p.output = f
		return nil
	})
}
