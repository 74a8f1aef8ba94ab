package statusmanager_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tinylet/tinylet/agent/apiserver/statusmanager"
	"github.com/tinylet/tinylet/agent/apiserver/strategicpatch/strategicpatchtest"
)

var hour = metav1.NewTime(time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC))

// running is the status of a pod that runs.
func running() *v1.PodStatus {
	started := true
	return &v1.PodStatus{
		ObservedGeneration: 1, Phase: v1.PodRunning, HostIP: "10.0.0.1", HostIPs: []v1.HostIP{{IP: "10.0.0.1"}},
		PodIP: "10.1.0.2", PodIPs: []v1.PodIP{{IP: "10.1.0.2"}, {IP: "fd00::2"}}, StartTime: &hour, QOSClass: v1.PodQOSBestEffort,
		Conditions: []v1.PodCondition{
			{Type: v1.PodScheduled, Status: "True", LastTransitionTime: hour},
			{Type: v1.PodReady, Status: "True", LastTransitionTime: hour, ObservedGeneration: 1},
			{Type: v1.ContainersReady, Status: "True", LastTransitionTime: hour, ObservedGeneration: 1},
		},
		ContainerStatuses: []v1.ContainerStatus{{
			Name: "a", Image: "i", ContainerID: "containerd://1", Ready: true, Started: &started,
			State: v1.ContainerState{Running: &v1.ContainerStateRunning{StartedAt: hour}},
		}},
	}
}

func TestPatch(t *testing.T) {
	const uid = `{"metadata":{"uid":"u"},"status":`
	for _, row := range []struct {
		name           string
		before, change func(*v1.PodStatus)
		want           string
	}{
		{name: "nothing", change: func(*v1.PodStatus) {}},
		{name: "parts of a second", change: func(s *v1.PodStatus) {
			s.Conditions[1].LastTransitionTime = metav1.NewTime(hour.Add(time.Millisecond))
			later := metav1.NewTime(hour.Add(time.Nanosecond).Local())
			s.StartTime = &later
		}},
		{name: "another order of conditions", change: func(s *v1.PodStatus) {
			s.Conditions[0], s.Conditions[1] = s.Conditions[1], s.Conditions[0]
		}},
		{name: "a field", change: func(s *v1.PodStatus) { s.Phase, s.Reason = v1.PodFailed, "Evicted" }, want: uid + `{"phase":"Failed","reason":"Evicted"}}`},
		{name: "a field that goes", change: func(s *v1.PodStatus) { s.PodIP = "" }, want: uid + `{"podIP":null}}`},
		{
			name: "a condition changes", change: func(s *v1.PodStatus) { s.Conditions[1].Status, s.Conditions[1].Reason = "False", "R" },
			want: uid + `{"conditions":[{"reason":"R","status":"False","type":"Ready"}]}}`,
		},
		{
			name: "a condition comes and one goes", change: func(s *v1.PodStatus) {
				s.Conditions[0] = v1.PodCondition{Type: v1.PodInitialized, Status: "True", LastTransitionTime: hour}
			},
			want: uid + `{"conditions":[{"$patch":"delete","type":"PodScheduled"},` +
				`{"lastTransitionTime":"2026-03-01T12:00:00Z","status":"True","type":"Initialized"}]}}`,
		},
		{
			name: "a type that stands twice", before: func(s *v1.PodStatus) {
				s.Conditions = []v1.PodCondition{{Type: "X", Status: "True"}, {Type: "X", Status: "False"}}
			},
			change: func(s *v1.PodStatus) { s.Conditions = s.Conditions[:1] },
			want: uid + `{"conditions":[{"lastProbeTime":null,"lastTransitionTime":null,"status":"True","type":"X"},` +
				`{"$patch":"replace"}]}}`,
		},
		{
			name: "addresses change their order", change: func(s *v1.PodStatus) { s.PodIPs[0], s.PodIPs[1] = s.PodIPs[1], s.PodIPs[0] },
			want: uid + `{"podIPs":[{"ip":"fd00::2"},{"ip":"10.1.0.2"},{"$patch":"replace"}]}}`,
		},
		{
			name: "addresses go", change: func(s *v1.PodStatus) { s.HostIPs = nil },
			want: uid + `{"hostIPs":[{"$patch":"replace"}]}}`,
		},
		{
			name: "containers are told whole", change: func(s *v1.PodStatus) {
				s.ContainerStatuses = []v1.ContainerStatus{{Name: "a", RestartCount: 1}}
			},
			want: uid + `{"containerStatuses":[{"image":"","imageID":"","lastState":{},"name":"a","ready":false,"restartCount":1,"state":{}}]}}`,
		},
	} {
		t.Run(row.name, func(t *testing.T) {
			before := running()
			if row.before != nil {
				row.before(before)
			}
			after := before.DeepCopy()
			row.change(after)
			got, err := statusmanager.Patch("u", before, after)
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

// holds checks that the patch of a pair turns the first into the second.
func holds(t *testing.T, seed int64) {
	t.Helper()
	before, after := pair(seed)
	kept, wanted := before.DeepCopy(), after.DeepCopy()
	patch, err := statusmanager.Patch("u", before, after)
	if err != nil {
		t.Fatalf("seed %d: %v", seed, err)
	}
	if !equality.Semantic.DeepEqual(kept, before) || !equality.Semantic.DeepEqual(wanted, after) {
		t.Fatalf("seed %d: Patch changed its arguments", seed)
	}
	got := &v1.Pod{Status: *before}
	if patch != nil {
		if got, err = strategicpatchtest.Apply(got, types.StrategicMergePatchType, patch); err != nil {
			t.Fatalf("seed %d: %s: %v", seed, patch, err)
		}
	}
	if want, got := ordered(after), ordered(&got.Status); !equality.Semantic.DeepEqual(want, got) {
		t.Errorf("seed %d: %s makes (-want +got):\n%s", seed, patch, cmp.Diff(want, got))
	}
}

func TestPatchOfPairs(t *testing.T) {
	for seed := range int64(100) {
		holds(t, seed)
	}
}

func FuzzPatch(f *testing.F) {
	f.Add(int64(0))
	f.Fuzz(func(t *testing.T, seed int64) { holds(t, seed) })
}

func BenchmarkPatchOfAContainer(b *testing.B) {
	before := running()
	after := before.DeepCopy()
	after.ContainerStatuses[0].RestartCount++
	b.ReportAllocs()
	for b.Loop() {
		if _, err := statusmanager.Patch("u", before, after); err != nil {
			b.Fatal(err)
		}
	}
}
