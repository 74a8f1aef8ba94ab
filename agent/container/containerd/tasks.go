package containerd

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync/atomic"
	"time"

	tasksapi "github.com/containerd/containerd/api/services/tasks/v1"
	"github.com/containerd/containerd/api/types/task"
	"github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/core/containers"
	"github.com/containerd/errdefs"
	"github.com/containerd/errdefs/pkg/errgrpc"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tinylet/tinylet/agent/container"
)

// Tasks is a client of containerd's task service. It is safe for concurrent use. It has
// no connection between calls, because they are rare.
type Tasks struct {
	path string
	proc string // mount point of procfs
	// readTimeout limits the read of a process's command line. readers is the number
	// of reads in progress.
	readTimeout time.Duration
	readers     atomic.Int32
}

// Ended reports whether a container's task has stopped or does not exist. It blocks
// until containerd has the state from the shim, or until ctx ends.
func (t *Tasks) Ended(ctx context.Context, containerID string) (bool, error) {
	c, err := dial(t.path)
	if err != nil {
		return false, err
	}
	defer c.Close()
	call, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	answer, err := c.TaskService().Get(call, &tasksapi.GetRequest{ContainerID: containerID})
	err = errgrpc.ToNative(err)
	if errdefs.IsNotFound(err) {
		return true, nil
	}
	if err != nil {
		return false, wrap(ctx, err, "get task of container %q", containerID)
	}
	return answer.GetProcess().GetStatus() == task.Status_STOPPED, nil
}

// The label that distinguishes sandbox containers from others, and its value
// (internal/cri/labels in containerd).
const (
	labelKind   = "io.cri-containerd.kind"
	kindSandbox = "sandbox"
)

// RemoveOrphans removes the orphaned tasks of a pod from containerd, and for sandboxes
// also the container record and the snapshot. It returns the number of containers
// with an orphaned task. The pod must be stopped in CRI and have no live processes.
//
// If a CRI client disconnects between the creation of a task and the response,
// containerd loses track of the task: it does not end the task, the shim stays, and
// removing the container fails because it has a task
// (plugins/services/tasks/local.go: Create). CRI then no longer lists a sandbox
// (internal/cri/server/podsandbox/sandbox_run.go), so RemoveOrphans removes its record
// and its snapshot too. CRI can remove other containers once they have no task.
//
// It blocks until containerd and the shims have responded, or until ctx ends. It
// continues after errors and joins them.
func (t *Tasks) RemoveOrphans(ctx context.Context, pod types.UID) (removed int, err error) {
	if pod == "" {
		return 0, nil
	}
	c, err := dial(t.path)
	if err != nil {
		return 0, err
	}
	defer c.Close()
	found, err := containersOf(ctx, c, pod)
	if err != nil {
		return 0, err
	}
	var errs []error
	for _, o := range found {
		had, err := removeOrphan(ctx, c, &o)
		if had {
			removed++
		}
		errs = append(errs, err)
	}
	return removed, errors.Join(errs...)
}

// containersOf lists a pod's containers, including sandboxes.
func containersOf(ctx context.Context, c *client.Client, pod types.UID) (found []containers.Container, err error) {
	call, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	filter := fmt.Sprintf("labels.%s==%s", strconv.Quote(container.LabelPodUID), strconv.Quote(string(pod)))
	list, err := c.ContainerService().List(call, filter)
	if err != nil {
		return nil, wrap(ctx, err, "list containers of pod %q", pod)
	}
	for _, o := range list {
		if o.Labels[container.LabelPodUID] == string(pod) {
			found = append(found, o)
		}
	}
	return found, nil
}

// removeOrphan deletes the task of a container, whose processes must be dead, and for a
// sandbox the container record and the snapshot. had reports whether there was a task.
func removeOrphan(ctx context.Context, c *client.Client, o *containers.Container) (had bool, err error) {
	remove := func(what, key string, do func(context.Context) error) error {
		call, cancel := context.WithTimeout(ctx, callTimeout)
		defer cancel()
		return wrap(ctx, do(call), "delete %s %q", what, key)
	}
	err = remove("task of container", o.ID, func(ctx context.Context) error {
		_, err := c.TaskService().Delete(ctx, &tasksapi.DeleteTaskRequest{ContainerID: o.ID})
		return errgrpc.ToNative(err)
	})
	switch {
	case errors.Is(err, container.ErrNotFound):
		return false, nil // CRI can remove the container
	case err != nil:
		return false, err
	case o.Labels[labelKind] != kindSandbox:
		return true, nil
	}
	err = remove("container", o.ID, func(ctx context.Context) error { return c.ContainerService().Delete(ctx, o.ID) })
	if err != nil && !errors.Is(err, container.ErrNotFound) {
		return true, err
	}
	if o.SnapshotKey == "" || o.Snapshotter == "" { // without a name, the client would query the default one
		return true, nil
	}
	err = remove("snapshot", o.SnapshotKey, func(ctx context.Context) error {
		return c.SnapshotService(o.Snapshotter).Remove(ctx, o.SnapshotKey)
	})
	if err != nil && !errors.Is(err, container.ErrNotFound) {
		return true, err
	}
	return true, nil
}
