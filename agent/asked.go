package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/tinylet/tinylet/agent/container"
	"github.com/tinylet/tinylet/agent/pod"
	"github.com/tinylet/tinylet/agent/server"
	"github.com/tinylet/tinylet/agent/server/streaming"
)

// observeLimit is how long a session waits for the first observation of a pod.
// A worker observes a pod as the first thing; only a runtime that does not
// answer takes longer.
const observeLimit = 10 * time.Second

// found is what the runtime knows a pod or a container by, as sessions want it.
// After a start of the agent the status of a pod that was restored says
// ContainerCreating until its worker has observed it. So what such a status
// says does not run is answered only after that, or after observeLimit.
func (v *view) found(ctx context.Context, name streaming.Name) (streaming.Found, error) {
	ctx, cancel := context.WithTimeout(ctx, observeLimit)
	defer cancel()
	changed := make(chan struct{}, 1)
	defer v.statuses.Notify(changed)()
	for {
		e, known := v.newest(name)
		f, err := foundIn(e, known, name)
		if e.Observed || !errors.Is(err, streaming.ErrNotRunning) {
			return f, err
		}
		select {
		case <-ctx.Done():
			return f, err
		case <-changed:
		}
	}
}

// foundIn is what found answers of a pod, if there is one.
func foundIn(e pod.Entry, known bool, name streaming.Name) (streaming.Found, error) {
	switch {
	case !known && name.UID != "":
		return streaming.Found{}, fmt.Errorf("pod %s/%s with the UID %s: %w", name.Namespace, name.Pod, name.UID, streaming.ErrNotFound)
	case !known:
		return streaming.Found{}, fmt.Errorf("pod %s/%s: %w", name.Namespace, name.Pod, streaming.ErrNotFound)
	case name.Container != "":
		id, err := runningIn(e, name)
		return streaming.Found{SandboxID: e.Sandbox.ID, ContainerID: id}, err
	case e.Sandbox.ID == "":
		return streaming.Found{}, fmt.Errorf("pod %s/%s has no sandbox (it is %s): %w", name.Namespace, name.Pod, e.Status.Phase, streaming.ErrNotRunning)
	}
	return streaming.Found{SandboxID: e.Sandbox.ID}, nil
}

// newest is the pod that a name means: of two with one name, the one that
// takes the other's place.
func (v *view) newest(name streaming.Name) (found pod.Entry, ok bool) {
	for _, e := range v.statuses.List() {
		if e.Pod.Namespace != name.Namespace || e.Pod.Name != name.Pod || name.UID != "" && e.Pod.UID != types.UID(name.UID) {
			continue
		}
		if !ok || pod.Newer(e.Pod, found.Pod) {
			found, ok = e, true
		}
	}
	return found, ok
}

// runningIn is the ID of a pod's container that runs.
func runningIn(e pod.Entry, name streaming.Name) (string, error) {
	if c, _ := pod.FindContainer(&e.Pod.Spec, name.Container); c == nil {
		return "", fmt.Errorf("container %q of pod %s/%s: %w", name.Container, name.Namespace, name.Pod, streaming.ErrNotFound)
	}
	c, ok := e.RunningOf(name.Container)
	if !ok {
		word := wordFor(pod.FindContainerStatus(e.Status, name.Container))
		return "", fmt.Errorf("container %q of pod %s/%s is %s: %w", name.Container, name.Namespace, name.Pod, word, streaming.ErrNotRunning)
	}
	return c.ID, nil
}

// wordFor is a container's state for people.
func wordFor(c *v1.ContainerStatus) string {
	switch {
	case c == nil:
		return "not made yet"
	case c.State.Terminated != nil && c.State.Terminated.Reason == "":
		return fmt.Sprintf("terminated (exit code %d)", c.State.Terminated.ExitCode)
	case c.State.Terminated != nil:
		return fmt.Sprintf("terminated (%s, exit code %d)", c.State.Terminated.Reason, c.State.Terminated.ExitCode)
	case c.State.Waiting != nil && c.State.Waiting.Reason != "":
		return fmt.Sprintf("waiting (%s)", c.State.Waiting.Reason)
	case c.State.Running != nil:
		return "running without an ID"
	}
	return "waiting"
}

// started is the ID of a pod's container that runs.
func (v *view) started(uid types.UID, name string) (id string, ok bool) {
	e, ok := v.statuses.Entry(uid)
	if !ok {
		return "", false
	}
	c, ok := e.RunningOf(name)
	return c.ID, ok
}

// logs finds the logs of containers.
type logs struct {
	runtime interface {
		ContainerStatus(ctx context.Context, containerID string) (*runtimeapi.ContainerStatus, error)
	}
	view *view
}

// containerLog is where the runtime writes a container's log, or, while it
// does not answer, where it was told to.
func (l *logs) containerLog(ctx context.Context, q server.LogQuery) (server.LogFile, error) {
	file := server.LogFile{}
	told, err := l.runtime.ContainerStatus(ctx, q.ID)
	if err == nil {
		file.Path = told.GetLogPath()
	} else if !errors.Is(err, container.ErrNotFound) {
		file.Path = l.view.plannedLog(q)
	}
	if file.Path == "" {
		return file, fmt.Errorf("find the log of container %s: %w", q.ID, cmp.Or(err, errNoLog))
	}
	if q.Follow {
		ended := make(chan struct{})
		file.Ended = ended
		go l.view.tellEnd(ctx, q, ended)
	}
	return file, nil
}

// plannedLog is where the runtime was told to write the log of a container's
// newest attempt, or "".
func (v *view) plannedLog(q server.LogQuery) string {
	node, told := v.node.peek()
	e, known := v.statuses.Entry(q.Pod.UID)
	if !told || !known {
		return ""
	}
	if c, runs := e.RunningOf(q.Container); runs && c.ID == q.ID {
		return v.logPath(e.Pod, node, c.Name, c.Restarts)
	}
	c := pod.FindContainerStatus(e.Status, q.Container)
	if c == nil || idOf(c) != q.ID {
		return ""
	}
	return v.logPath(e.Pod, node, c.Name, int(c.RestartCount))
}

// errNoLog is what there is of a container without a log.
var errNoLog = errors.New("the runtime writes none")

// tellEnd closes ended as soon as a container does not run any more, or
// returns when ctx ends.
func (v *view) tellEnd(ctx context.Context, q server.LogQuery, ended chan<- struct{}) {
	changed := make(chan struct{}, 1)
	defer v.statuses.Notify(changed)()
	for v.runs(q) {
		select {
		case <-ctx.Done():
			return
		case <-changed:
		}
	}
	close(ended)
}

func (v *view) runs(q server.LogQuery) bool {
	id, ok := v.started(q.Pod.UID, q.Container)
	return ok && id == q.ID
}
