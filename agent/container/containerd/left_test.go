package containerd

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tinylet/tinylet/agent/container"
)

// held returns a containers.Container like one of CRI.
func held(id, kind, uid string) message {
	var m, spec message
	spec.data(2, []byte(`{"ociVersion":"1.2.0"}`))
	m.text(1, id)
	m.dict(2, map[string]string{container.LabelPodUID: uid, labelKind: kind, "app": "web"})
	m.text(3, "registry.k8s.io/pause:3.10")
	m.data(5, spec)
	m.text(6, "overlayfs")
	m.text(7, id)
	return m
}

func TestRemoveLeft(t *testing.T) {
	const uid = `a"b\c`
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
			tasks: []string{"c", "other", "s"}, containers: []string{"s", "c", "whole", "other"}, snapshots: []string{"overlayfs c", "overlayfs other", "overlayfs s", "overlayfs whole"},
		},
		{
			name: "nothing of a pod without a UID", silent: true,
			tasks: []string{"c", "other", "s"}, containers: []string{"s", "c", "whole", "other"}, snapshots: []string{"overlayfs c", "overlayfs other", "overlayfs s", "overlayfs whole"},
		},
		{
			name: "what still lives stays", pod: uid, refuse: "tasks.v1.Tasks/Delete", err: status.Error(codes.FailedPrecondition, "it runs"), fails: true,
			tasks: []string{"c", "other", "s"}, containers: []string{"s", "c", "whole", "other"}, snapshots: []string{"overlayfs c", "overlayfs other", "overlayfs s", "overlayfs whole"},
		},
		{
			name: "a record that cannot be removed", pod: uid, refuse: "containers.v1.Containers/Delete", err: status.Error(codes.Internal, "disk"), removed: 2, fails: true,
			tasks: []string{"other"}, containers: []string{"s", "c", "whole", "other"}, snapshots: []string{"overlayfs c", "overlayfs other", "overlayfs s", "overlayfs whole"},
		},
		{
			name: "a snapshot that has gone before", pod: uid, refuse: "snapshots.v1.Snapshots/Remove", err: status.Error(codes.NotFound, "gone"), removed: 2,
			tasks: []string{"other"}, containers: []string{"c", "whole", "other"}, snapshots: []string{"overlayfs c", "overlayfs other", "overlayfs s", "overlayfs whole"},
		},
		{
			name: "a runtime that has no such list", pod: uid, refuse: "containers.v1.Containers/List", err: status.Error(codes.Unimplemented, "what"), fails: true, kind: container.ErrUnsupported,
			tasks: []string{"c", "other", "s"}, containers: []string{"s", "c", "whole", "other"}, snapshots: []string{"overlayfs c", "overlayfs other", "overlayfs s", "overlayfs whole"},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			srv, endpoint := serve(t)
			srv.tasks = map[string]message{"s": task(1), "c": task(3), "other": task(2)}
			srv.containers = []message{held("s", kindSandbox, uid), held("c", "container", uid), held("whole", kindSandbox, uid), held("other", kindSandbox, "other")}
			srv.snapshots = map[string]bool{"overlayfs s": true, "overlayfs c": true, "overlayfs whole": true, "overlayfs other": true}
			srv.refusals = map[string]error{tc.refuse: tc.err}
			tasks, err := NewTasks(endpoint)
			if err != nil {
				t.Fatal(err)
			}
			removed, err := tasks.RemoveLeft(t.Context(), tc.pod)
			if removed != tc.removed || (err != nil) != tc.fails || tc.kind != nil && !errors.Is(err, tc.kind) {
				t.Errorf("%d removed, %v", removed, err)
			}
			var containers []string
			for _, c := range srv.containers {
				containers = append(containers, decode(t, c).text(1))
			}
			if diff := cmp.Diff([][]string{tc.tasks, tc.containers, tc.snapshots}, [][]string{slices.Sorted(maps.Keys(srv.tasks)), containers, slices.Sorted(maps.Keys(srv.snapshots))}); diff != "" {
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

func TestRemoveLeftOfGarbage(t *testing.T) {
	srv, endpoint := serve(t)
	srv.containers = []message{{0x0a, 0xff}}
	tasks, err := NewTasks(endpoint)
	if err != nil {
		t.Fatal(err)
	}
	if n, err := tasks.RemoveLeft(t.Context(), "u"); n != 0 || !errors.Is(err, errWire) || !strings.Contains(err.Error(), `pod "u"`) {
		t.Errorf("%d, %v", n, err)
	}
}

func FuzzDecodeLeft(f *testing.F) {
	f.Add([]byte(held("s", kindSandbox, "u")))
	f.Add([]byte{0x12, 0x02, 0x0a, 0xff})
	f.Fuzz(func(t *testing.T, m []byte) {
		c, err := decodeOrphan(m)
		if err != nil {
			if !errors.Is(err, errWire) {
				t.Errorf("%v", err)
			}
			return
		}
		if c.labels[""] == "" {
			delete(c.labels, "") // an entry without key and value is not encoded
		}
		again, err := decodeOrphan(c.encoded())
		if diff := cmp.Diff(c, again, cmp.AllowUnexported(orphan{})); err != nil || diff != "" {
			t.Errorf("%v, read again (-first +second):\n%s", err, diff)
		}
	})
}

// encoded encodes the fields of c.
func (c *orphan) encoded() message {
	var m message
	m.text(1, c.id)
	m.dict(2, c.labels)
	m.text(6, c.snapshotter)
	m.text(7, c.snapshot)
	return m
}
