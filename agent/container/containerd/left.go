package containerd

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/encoding/protowire"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tinylet/tinylet/agent/container"
)

// labelKind is the label that distinguishes sandbox containers from others
// (internal/cri/labels in containerd).
const (
	labelKind   = "io.cri-containerd.kind"
	kindSandbox = "sandbox"
)

// orphan has the used fields of a containers.Container.
type orphan struct {
	id, snapshotter, snapshot string
	labels                    map[string]string
}

// RemoveLeft removes the orphaned tasks of a pod from containerd, and for sandboxes
// also the container record and the snapshot. It returns the number of containers
// with an orphaned task. The pod must be stopped in CRI and have no live processes.
//
// If a CRI client disconnects between the creation of a task and the response,
// containerd loses track of the task: it does not end the task, the shim stays, and
// removing the container fails because it has a task
// (plugins/services/tasks/local.go: Create). CRI then no longer lists a sandbox
// (internal/cri/server/podsandbox/sandbox_run.go), so RemoveLeft removes its record
// and its snapshot too. CRI can remove other containers once they have no task.
//
// It blocks until containerd and the shims have responded, or until ctx ends. It
// continues after errors and joins them.
func (t *Tasks) RemoveLeft(ctx context.Context, pod types.UID) (removed int, err error) {
	if pod == "" {
		return 0, nil
	}
	conn, err := dial(t.path)
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	found, err := containersOf(ctx, conn, pod)
	if err != nil {
		return 0, err
	}
	var errs []error
	for _, c := range found {
		had, err := c.remove(ctx, conn)
		if had {
			removed++
		}
		errs = append(errs, err)
	}
	return removed, errors.Join(errs...)
}

// containersOf lists a pod's containers, including sandboxes.
func containersOf(ctx context.Context, conn *grpc.ClientConn, pod types.UID) ([]orphan, error) {
	var request, answer message // containers.ListContainersRequest, containers.ListContainersResponse
	request.text(1, fmt.Sprintf("labels.%s==%s", strconv.Quote(container.LabelPodUID), strconv.Quote(string(pod))))
	if err := invoke(ctx, conn, "containers.v1.Containers/List", request, &answer); err != nil {
		return nil, wrap(ctx, err, "list containers of pod %q", pod)
	}
	var found []orphan
	err := each(answer, 1, protowire.BytesType, func(value []byte) error {
		c, err := decodeOrphan(inner(value))
		if err == nil && c.labels[container.LabelPodUID] == string(pod) {
			found = append(found, c)
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("list containers of pod %q: %w", pod, err)
	}
	return found, nil
}

// decodeOrphan decodes a containers.Container.
func decodeOrphan(m []byte) (c orphan, err error) {
	for number, to := range map[protowire.Number]*string{1: &c.id, 6: &c.snapshotter, 7: &c.snapshot} {
		value, err := field(m, number, protowire.BytesType)
		if err != nil {
			return orphan{}, err
		}
		*to = string(inner(value))
	}
	c.labels = make(map[string]string)
	err = each(m, 2, protowire.BytesType, func(entry []byte) error {
		key, err := field(inner(entry), 1, protowire.BytesType)
		if err != nil {
			return err
		}
		value, err := field(inner(entry), 2, protowire.BytesType)
		c.labels[string(inner(key))] = string(inner(value))
		return err
	})
	return c, err
}

// remove deletes the task of the container, whose processes must be dead, and for a
// sandbox the container record and the snapshot. had reports whether there was a task.
func (c *orphan) remove(ctx context.Context, conn *grpc.ClientConn) (had bool, err error) {
	var task message // tasks.DeleteTaskRequest
	task.text(1, c.id)
	switch err := wrap(ctx, invoke(ctx, conn, "tasks.v1.Tasks/Delete", task, nil), "delete task of container %q", c.id); {
	case errors.Is(err, container.ErrNotFound):
		return false, nil // CRI can remove the container
	case err != nil:
		return false, err
	}
	if c.labels[labelKind] != kindSandbox {
		return true, nil
	}
	var record, snapshot message // containers.DeleteContainerRequest, snapshots.RemoveSnapshotRequest
	record.text(1, c.id)
	if err := wrap(ctx, invoke(ctx, conn, "containers.v1.Containers/Delete", record, nil), "delete container %q", c.id); err != nil && !errors.Is(err, container.ErrNotFound) {
		return true, err
	}
	if c.snapshot == "" {
		return true, nil
	}
	snapshot.text(1, c.snapshotter)
	snapshot.text(2, c.snapshot)
	if err := wrap(ctx, invoke(ctx, conn, "snapshots.v1.Snapshots/Remove", snapshot, nil), "remove snapshot %q", c.snapshot); err != nil && !errors.Is(err, container.ErrNotFound) {
		return true, err
	}
	return true, nil
}
