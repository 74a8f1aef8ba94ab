package containerd

import (
	"errors"
	"maps"
	"slices"
	"testing"

	containersapi "github.com/containerd/containerd/api/services/containers/v1"
	"github.com/containerd/containerd/api/types/task"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/anypb"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tinylet/tinylet/agent/container"
)

func newTasks(t *testing.T, endpoint string) *Tasks {
	t.Helper()
	tasks, err := New(endpoint)
	if err != nil {
		t.Fatal(err)
	}
	return tasks.Tasks
}

func TestEnded(t *testing.T) {
	srv, endpoint := serve(t)
	srv.tasks = map[string]task.Status{
		"created": task.Status_CREATED, "running": task.Status_RUNNING, "stopped": task.Status_STOPPED, "paused": task.Status_PAUSED,
		"silent": task.Status_UNKNOWN,
	}
	tasks := newTasks(t, endpoint)
	for id, want := range map[string]bool{"created": false, "running": false, "stopped": true, "paused": false, "gone": true, "silent": false} {
		if got, err := tasks.Ended(t.Context(), id); got != want || err != nil {
			t.Errorf("%s: %v, %v", id, got, err)
		}
	}
}

func TestEndedWithoutContainerd(t *testing.T) {
	tasks := newTasks(t, "unix://"+t.TempDir()+"/none")
	if ended, err := tasks.Ended(t.Context(), "id"); ended || !errors.Is(err, container.ErrUnavailable) {
		t.Errorf("%v, %v", ended, err)
	}
	if _, err := New("tcp://127.0.0.1:1"); err == nil {
		t.Error("an endpoint that is no socket")
	}
}

// stored returns a container record like one of CRI.
func stored(id, kind, uid string) *containersapi.Container {
	return &containersapi.Container{
		ID: id, Labels: map[string]string{container.LabelPodUID: uid, labelKind: kind, "app": "web"}, Image: "registry.k8s.io/pause:3.10",
		Spec: &anypb.Any{Value: []byte(`{"ociVersion":"1.2.0"}`)}, Snapshotter: "overlayfs", SnapshotKey: id,
	}
}

func TestRemoveOrphans(t *testing.T) {
	const uid = `a"b\c`
	all := []string{"overlayfs c", "overlayfs other", "overlayfs s", "overlayfs whole"}
	for _, tc := range []struct {
		name string
		pod  types.UID
		// refuse is a method that fails with err.
		refuse  string
		err     error
		removed int
		fails   bool
		kind    error // of the failure; nil is any
		// what is there afterwards
		tasks, containers, snapshots []string
		silent                       bool // containerd is not asked
	}{
		{
			name: "a sandbox whole, of a container its task", pod: uid, removed: 2,
			tasks: []string{"other"}, containers: []string{"c", "whole", "other"}, snapshots: []string{"overlayfs c", "overlayfs other", "overlayfs whole"},
		},
		{
			name: "nothing of a pod that has nothing", pod: "none",
			tasks: []string{"c", "other", "s"}, containers: []string{"s", "c", "whole", "other"}, snapshots: all,
		},
		{
			name: "nothing of a pod without a UID", silent: true,
			tasks: []string{"c", "other", "s"}, containers: []string{"s", "c", "whole", "other"}, snapshots: all,
		},
		{
			name: "what still lives stays", pod: uid, refuse: "tasks.v1.Tasks/Delete", err: status.Error(codes.FailedPrecondition, "it runs"), fails: true,
			tasks: []string{"c", "other", "s"}, containers: []string{"s", "c", "whole", "other"}, snapshots: all,
		},
		{
			name: "a record that cannot be removed", pod: uid, refuse: "containers.v1.Containers/Delete", err: status.Error(codes.Internal, "disk"), removed: 2, fails: true,
			tasks: []string{"other"}, containers: []string{"s", "c", "whole", "other"}, snapshots: all,
		},
		{
			name: "a snapshot that has gone before", pod: uid, refuse: "snapshots.v1.Snapshots/Remove", err: status.Error(codes.NotFound, "gone"), removed: 2,
			tasks: []string{"other"}, containers: []string{"c", "whole", "other"}, snapshots: all,
		},
		{
			name: "a runtime that has no such list", pod: uid, refuse: "containers.v1.Containers/ListStream", err: status.Error(codes.Unimplemented, "what"), fails: true, kind: container.ErrUnsupported,
			tasks: []string{"c", "other", "s"}, containers: []string{"s", "c", "whole", "other"}, snapshots: all,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			srv, endpoint := serve(t)
			srv.tasks = map[string]task.Status{"s": task.Status_CREATED, "c": task.Status_STOPPED, "other": task.Status_RUNNING}
			srv.containers = []*containersapi.Container{stored("s", kindSandbox, uid), stored("c", "container", uid), stored("whole", kindSandbox, uid), stored("other", kindSandbox, "other")}
			srv.snapshots = map[string]bool{"overlayfs s": true, "overlayfs c": true, "overlayfs whole": true, "overlayfs other": true}
			srv.refusals = map[string]error{tc.refuse: tc.err}
			removed, err := newTasks(t, endpoint).RemoveOrphans(t.Context(), tc.pod)
			if removed != tc.removed || (err != nil) != tc.fails || tc.kind != nil && !errors.Is(err, tc.kind) {
				t.Errorf("%d removed, %v", removed, err)
			}
			var ids []string
			for _, c := range srv.containers {
				ids = append(ids, c.ID)
			}
			if diff := cmp.Diff([][]string{tc.tasks, tc.containers, tc.snapshots}, [][]string{slices.Sorted(maps.Keys(srv.tasks)), ids, slices.Sorted(maps.Keys(srv.snapshots))}); diff != "" {
				t.Errorf("tasks, containers and snapshots (-want +got):\n%s", diff)
			}
			if tc.silent != (len(srv.calls) == 0) {
				t.Errorf("calls: %q", srv.calls)
			}
			if tc.pod == uid && tc.refuse == "" {
				if want := []string{`labels."io.kubernetes.pod.uid"=="a\"b\\c"`}; !slices.Equal(srv.filters, want) {
					t.Errorf("asked for %q, want %q", srv.filters, want)
				}
			}
		})
	}
}
