package server

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/tinylet/tinylet/agent/container"
	"github.com/tinylet/tinylet/agent/container/criconfig"
	"github.com/tinylet/tinylet/agent/pod"
	"github.com/tinylet/tinylet/agent/podworker/podstatus"
)

// ContainerLogs finds the log files of containers.
type ContainerLogs struct {
	Runtime interface {
		ContainerStatus(ctx context.Context, containerID string) (*runtimeapi.ContainerStatus, error)
	}
	Statuses *podstatus.Store
	// Node returns what the runtime has reported about itself; ok is false before that.
	Node func() (n *criconfig.Node, ok bool)
}

// errNoLog means that a container has no log.
var errNoLog = errors.New("the runtime writes none")

// Find returns the file to which the runtime writes a container's log. If the runtime
// returns an error other than ErrNotFound, Find uses the path in the container's config.
// For a query that follows, Ended is closed when the container has exited, unless ctx
// ends before.
func (l *ContainerLogs) Find(ctx context.Context, q LogQuery) (LogFile, error) {
	file := LogFile{}
	status, err := l.Runtime.ContainerStatus(ctx, q.ID)
	if err == nil {
		file.Path = status.GetLogPath()
	} else if !errors.Is(err, container.ErrNotFound) {
		file.Path = l.configuredPath(q)
	}
	if file.Path == "" {
		return file, fmt.Errorf("find the log of container %s: %w", q.ID, cmp.Or(err, errNoLog))
	}
	if q.Follow {
		ended := make(chan struct{})
		file.Ended = ended
		go l.closeAtExit(ctx, q, ended)
	}
	return file, nil
}

// configuredPath returns the log path in the config of a container's newest attempt, or "".
func (l *ContainerLogs) configuredPath(q LogQuery) string {
	node, ok := l.Node()
	e, known := l.Statuses.Entry(q.Pod.UID)
	if !ok || !known {
		return ""
	}
	if c, running := e.RunningOf(q.Container); running && c.ID == q.ID {
		return criconfig.ContainerLogPath(e.Pod, node, c.Name, c.Restarts)
	}
	c := pod.FindContainerStatus(e.Status, q.Container)
	if c == nil || pod.ContainerID(c) != q.ID {
		return ""
	}
	return criconfig.ContainerLogPath(e.Pod, node, c.Name, int(c.RestartCount))
}

// closeAtExit closes ended when a container no longer runs. It returns when ctx ends.
func (l *ContainerLogs) closeAtExit(ctx context.Context, q LogQuery, ended chan<- struct{}) {
	changed := make(chan struct{}, 1)
	defer l.Statuses.Notify(changed)()
	for {
		id, running := l.Statuses.RunningContainer(q.Pod.UID, q.Container)
		if !running || id != q.ID {
			close(ended)
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-changed:
		}
	}
}
