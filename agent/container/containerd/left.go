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

// labelKind tells containerd's containers for sandboxes from the others
// (internal/cri/labels in containerd).
const (
	labelKind   = "io.cri-containerd.kind"
	kindSandbox = "sandbox"
)

// left is what is of interest in a containers.Container.
type left struct {
	id, snapshotter, snapshot string
	labels                    map[string]string
}

// RemoveLeft takes away what containerd still holds of a pod of which CRI has
// stopped all and nothing lives any more, and says of how many containers.
//
// Where the caller of CRI goes away between the making of a task and the
// answer, containerd forgets that the task was made: it does not end it, its
// shim stays, and to remove the container fails as it has a task
// (plugins/services/tasks/local.go: Create). Of a sandbox CRI loses sight then
// (internal/cri/server/podsandbox/sandbox_run.go), so that its record and its
// snapshot are removed here, too; the other containers CRI removes by itself
// once they have no task.
//
// It blocks for as long as containerd and the shims take, or until ctx ends.
// Of several errors all are told, and what can be removed is.
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

// containersOf lists a pod's containers, sandboxes among them.
func containersOf(ctx context.Context, conn *grpc.ClientConn, pod types.UID) ([]left, error) {
	var request, answer message // containers.ListContainersRequest, containers.ListContainersResponse
	request.text(1, fmt.Sprintf("labels.%s==%s", strconv.Quote(container.LabelPodUID), strconv.Quote(string(pod))))
	if err := invoke(ctx, conn, "containers.v1.Containers/List", request, &answer); err != nil {
		return nil, wrap(ctx, err, "list the containers of pod %q", pod)
	}
	var found []left
	err := each(answer, 1, protowire.BytesType, func(value []byte) error {
		c, err := decodeLeft(inner(value))
		if err == nil && c.labels[container.LabelPodUID] == string(pod) {
			found = append(found, c)
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("list the containers of pod %q: %w", pod, err)
	}
	return found, nil
}

// decodeLeft reads a containers.Container.
func decodeLeft(m []byte) (c left, err error) {
	for number, to := range map[protowire.Number]*string{1: &c.id, 6: &c.snapshotter, 7: &c.snapshot} {
		value, err := field(m, number, protowire.BytesType)
		if err != nil {
			return left{}, err
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

// remove ends what runs for the container, whose processes are dead, and says
// whether there was anything.
func (c *left) remove(ctx context.Context, conn *grpc.ClientConn) (had bool, err error) {
	var task message // tasks.DeleteTaskRequest
	task.text(1, c.id)
	switch err := wrap(ctx, invoke(ctx, conn, "tasks.v1.Tasks/Delete", task, nil), "delete the task of container %q", c.id); {
	case errors.Is(err, container.ErrNotFound):
		return false, nil // CRI has all of it in its sight
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
