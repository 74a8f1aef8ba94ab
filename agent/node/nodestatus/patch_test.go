package nodestatus_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tinylet/tinylet/agent/apiserver/strategicpatch/strategicpatchtest"
	"github.com/tinylet/tinylet/agent/node/nodestatus"
)

// reported is a node that was reported once.
func reported(t *testing.T) *v1.Node {
	t.Helper()
	n, err := nodestatus.Initial(board(t))
	if err != nil {
		t.Fatal(err)
	}
	n.Status.Conditions = append([]v1.NodeCondition{{Type: v1.NodeNetworkUnavailable, Status: "False"}}, n.Status.Conditions...)
	return n
}

func TestPatch(t *testing.T) {
	for _, row := range []struct {
		name           string
		before, change func(*v1.Node)
		want           string
	}{
		{name: "nothing", change: func(*v1.Node) {}},
		{name: "what is not the status", change: func(n *v1.Node) {
			n.Spec.Unschedulable, n.ResourceVersion, n.Finalizers = true, "9", []string{"x"}
		}},
		{
			name:   "one message",
			change: func(n *v1.Node) { n.Status.Conditions[4].Message = "m" },
			want:   `{"status":{"conditions":[{"message":"m","type":"Ready"}]}}`,
		},
		{
			name:   "a field that goes",
			change: func(n *v1.Node) { n.Status.Conditions[4].Message = "" },
			want:   `{"status":{"conditions":[{"message":null,"type":"Ready"}]}}`,
		},
		{
			name: "a condition that comes", change: func(n *v1.Node) {
				n.Status.Conditions = append(n.Status.Conditions, v1.NodeCondition{Type: "X", Status: "True"})
			},
			want: `{"status":{"$setElementOrder/conditions":[{"type":"NetworkUnavailable"},{"type":"MemoryPressure"},{"type":"DiskPressure"},{"type":"PIDPressure"},{"type":"Ready"},{"type":"X"}],` +
				`"conditions":[{"lastHeartbeatTime":null,"lastTransitionTime":null,"status":"True","type":"X"}]}}`,
		},
		{
			name: "a condition that goes", change: func(n *v1.Node) { n.Status.Conditions = n.Status.Conditions[1:] },
			want: `{"status":{"conditions":[{"$patch":"delete","type":"NetworkUnavailable"}]}}`,
		},
		{
			name: "all conditions go", change: func(n *v1.Node) { n.Status.Conditions = nil },
			before: func(n *v1.Node) { n.Status.Conditions = n.Status.Conditions[4:] },
			want:   `{"status":{"conditions":[{"$patch":"delete","type":"Ready"}]}}`,
		},
		{
			name: "another order", before: func(n *v1.Node) { n.Status.Conditions = n.Status.Conditions[3:] },
			change: func(n *v1.Node) {
				c := n.Status.Conditions
				c[0], c[1] = c[1], c[0]
			},
			want: `{"status":{"$setElementOrder/conditions":[{"type":"Ready"},{"type":"PIDPressure"}]}}`,
		},
		{
			name: "a type that stands twice", before: func(n *v1.Node) {
				n.Status.Conditions = []v1.NodeCondition{{Type: "X", Status: "True"}, {Type: "X", Status: "False"}}
			},
			change: func(n *v1.Node) { n.Status.Conditions = n.Status.Conditions[:1] },
			want: `{"status":{"conditions":[{"lastHeartbeatTime":null,"lastTransitionTime":null,"status":"True","type":"X"},` +
				`{"$patch":"replace"}]}}`,
		},
		{
			name: "addresses are replaced as a whole", change: func(n *v1.Node) {
				n.Status.Addresses = []v1.NodeAddress{{Type: "InternalIP", Address: "10.0.0.1"}, {Type: "InternalIP", Address: "fd00::1"}}
			},
			want: `{"status":{"addresses":[{"address":"10.0.0.1","type":"InternalIP"},{"address":"fd00::1","type":"InternalIP"},{"$patch":"replace"}]}}`,
		},
		{
			name: "addresses go", change: func(n *v1.Node) { n.Status.Addresses = nil },
			want: `{"status":{"addresses":[{"$patch":"replace"}]}}`,
		},
		{
			name: "resources come, change and go", before: func(n *v1.Node) {
				n.Status.Capacity = quantities(map[v1.ResourceName]string{"cpu": "4", "memory": "1Gi", "example.com/a": "1"})
			},
			change: func(n *v1.Node) {
				delete(n.Status.Capacity, "example.com/a")
				n.Status.Capacity["memory"], n.Status.Capacity["hugepages-2Mi"] = resource.MustParse("2Gi"), resource.MustParse("0")
			},
			want: `{"status":{"capacity":{"example.com/a":null,"hugepages-2Mi":"0","memory":"2Gi"}}}`,
		},
		{
			name: "lists of others are replaced", change: func(n *v1.Node) {
				n.Status.VolumesInUse = []v1.UniqueVolumeName{"v"}
				n.Status.DeclaredFeatures = []string{"A", "B"}
				n.Status.Images = n.Status.Images[1:]
			},
			want: `{"status":{"declaredFeatures":["A","B"],"images":[{"names":["registry.k8s.io/pause:3.10"],"sizeBytes":260000}],"volumesInUse":["v"]}}`,
		},
		{
			name: "a size that no floating point number holds", change: func(n *v1.Node) {
				n.Status.Images = []v1.ContainerImage{{Names: []string{}, SizeBytes: 1<<53 + 1}}
			},
			want: `{"status":{"images":[{"names":[],"sizeBytes":9007199254740993}]}}`,
		},
		{
			name: "within nodeInfo", change: func(n *v1.Node) { n.Status.NodeInfo.BootID = "b" },
			want: `{"status":{"nodeInfo":{"bootID":"b"}}}`,
		},
		{
			name: "features go", change: func(n *v1.Node) { n.Status.Features = nil },
			want: `{"status":{"features":null}}`,
		},
		{
			name: "labels and annotations", before: func(n *v1.Node) { n.Labels, n.Annotations = map[string]string{"a": "1", "b": "1"}, nil },
			change: func(n *v1.Node) {
				n.Labels, n.Annotations = map[string]string{"b": "2", "c": ""}, map[string]string{"x": "<&>"}
			},
			want: `{"metadata":{"annotations":{"x":"\u003c\u0026\u003e"},"labels":{"a":null,"b":"2","c":""}}}`,
		},
	} {
		t.Run(row.name, func(t *testing.T) {
			before := reported(t)
			if row.before != nil {
				row.before(before)
			}
			after := before.DeepCopy()
			row.change(after)
			got, err := nodestatus.Patch(before, after)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(row.want, string(got)); diff != "" {
				t.Errorf("patch (-want +got):\n%s", diff)
			}
			if (got == nil) != (row.want == "") {
				t.Error("only a patch of nothing is nil")
			}
		})
	}
}

// TestHeartbeat checks the patch of a node without changes.
func TestHeartbeat(t *testing.T) {
	before := reported(t)
	after, changed, err := nodestatus.Update(before, board(t, func(in *nodestatus.Inputs) { in.Now = at.Add(5 * time.Minute) }))
	if err != nil || changed {
		t.Fatalf("changed %t, error %v", changed, err)
	}
	got, err := nodestatus.Patch(before, after)
	if err != nil {
		t.Fatal(err)
	}
	const want = `{"status":{"conditions":[` +
		`{"lastHeartbeatTime":"2026-03-01T12:05:00Z","type":"MemoryPressure"},` +
		`{"lastHeartbeatTime":"2026-03-01T12:05:00Z","type":"DiskPressure"},` +
		`{"lastHeartbeatTime":"2026-03-01T12:05:00Z","type":"PIDPressure"},` +
		`{"lastHeartbeatTime":"2026-03-01T12:05:00Z","type":"Ready"}]}}`
	if string(got) != want {
		t.Errorf("patch %s, want %s", got, want)
	}
}

// same compares the fields that a patch may change.
func same(a, b *v1.Node) bool {
	return equality.Semantic.DeepEqual(a.Labels, b.Labels) && equality.Semantic.DeepEqual(a.Annotations, b.Annotations) &&
		equality.Semantic.DeepEqual(a.Status, b.Status)
}

// holds checks that the patch of a pair changes the first node into the second.
func holds(t *testing.T, seed int64) {
	t.Helper()
	before, after := pair(seed)
	kept, wanted := before.DeepCopy(), after.DeepCopy()
	patch, err := nodestatus.Patch(before, after)
	if err != nil {
		t.Fatalf("seed %d: %v", seed, err)
	}
	if !equality.Semantic.DeepEqual(kept, before) || !equality.Semantic.DeepEqual(wanted, after) {
		t.Fatalf("seed %d: Patch changed its arguments", seed)
	}
	if patch == nil {
		if !same(before, after) {
			t.Fatalf("seed %d: no patch for\n%s", seed, cmp.Diff(before, after))
		}
		return
	}
	got, err := strategicpatchtest.Apply(before, types.StrategicMergePatchType, patch)
	if err != nil {
		t.Fatalf("seed %d: %s: %v", seed, patch, err)
	}
	if !same(got, after) {
		t.Errorf("seed %d: %s makes (-want +got):\n%s", seed, patch, cmp.Diff(after, got))
	}
}

func TestPatchOfPairs(t *testing.T) {
	for seed := range int64(500) {
		holds(t, seed)
	}
}

func FuzzPatch(f *testing.F) {
	f.Add(int64(0))
	f.Fuzz(func(t *testing.T, seed int64) { holds(t, seed) })
}

func BenchmarkPatchOfHeartbeat(b *testing.B) {
	before, _ := pair(1)
	after := before.DeepCopy()
	for i := range after.Status.Conditions {
		after.Status.Conditions[i].LastHeartbeatTime = now
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := nodestatus.Patch(before, after); err != nil {
			b.Fatal(err)
		}
	}
}
