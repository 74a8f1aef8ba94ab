package nodestatus_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/tinylet/tinylet/agent/config/evictionapi"
	"github.com/tinylet/tinylet/agent/node/nodestatus"
)

var (
	now     = metav1.NewTime(at)
	earlier = metav1.NewTime(at.Add(-time.Hour))
)

func TestPressures(t *testing.T) {
	memory := func(u *evictionapi.Conditions) { u.Memory = true }
	disk := func(u *evictionapi.Conditions) { u.Disk = true }
	pid := func(u *evictionapi.Conditions) { u.PID = true }
	for _, row := range []struct {
		kind   v1.NodeConditionType
		under  func(*evictionapi.Conditions)
		status v1.ConditionStatus
		reason string
		text   string
	}{
		{"MemoryPressure", nil, "False", "KubeletHasSufficientMemory", "kubelet has sufficient memory available"},
		{"MemoryPressure", memory, "True", "KubeletHasInsufficientMemory", "kubelet has insufficient memory available"},
		{"DiskPressure", nil, "False", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"},
		{"DiskPressure", disk, "True", "KubeletHasDiskPressure", "kubelet has disk pressure"},
		{"PIDPressure", nil, "False", "KubeletHasSufficientPID", "kubelet has sufficient PID available"},
		{"PIDPressure", pid, "True", "KubeletHasInsufficientPID", "kubelet has insufficient PID available"},
	} {
		t.Run(string(row.kind)+string(row.status), func(t *testing.T) {
			in := board(t)
			if row.under != nil {
				row.under(&in.Pressures)
			}
			fresh := v1.NodeCondition{
				Type: row.kind, Status: row.status, Reason: row.reason, Message: row.text,
				LastHeartbeatTime: now, LastTransitionTime: now,
			}
			for _, c := range []struct {
				name string
				old  *v1.NodeCondition
				want v1.NodeCondition
			}{
				{"new", nil, fresh},
				{
					"unchanged: only the heartbeat moves",
					&v1.NodeCondition{Type: row.kind, Status: row.status, Reason: "R", Message: "M", LastHeartbeatTime: earlier, LastTransitionTime: earlier},
					v1.NodeCondition{Type: row.kind, Status: row.status, Reason: "R", Message: "M", LastHeartbeatTime: now, LastTransitionTime: earlier},
				},
				{
					"the node controller lost sight of it",
					&v1.NodeCondition{Type: row.kind, Status: "Unknown", Reason: "NodeStatusUnknown", LastHeartbeatTime: earlier, LastTransitionTime: earlier},
					fresh,
				},
			} {
				old := &v1.NodeStatus{}
				if c.old != nil {
					old.Conditions = []v1.NodeCondition{*c.old}
				}
				got := status(t, old, in)
				if diff := cmp.Diff(c.want, condition(t, &got, row.kind)); diff != "" {
					t.Errorf("%s (-want +got):\n%s", c.name, diff)
				}
			}
		})
	}
}

func TestReady(t *testing.T) {
	off := false
	for _, row := range []struct {
		name   string
		change func(*nodestatus.Inputs)
		old    v1.ConditionStatus
		want   v1.NodeCondition
	}{
		{
			name: "ready",
			want: v1.NodeCondition{Status: "True", Reason: "KubeletReady", Message: "kubelet is posting ready status", LastTransitionTime: now},
		},
		{
			name: "still ready", old: "True",
			want: v1.NodeCondition{Status: "True", Reason: "KubeletReady", Message: "kubelet is posting ready status", LastTransitionTime: earlier},
		},
		{
			name: "ready again", old: "Unknown",
			want: v1.NodeCondition{Status: "True", Reason: "KubeletReady", Message: "kubelet is posting ready status", LastTransitionTime: now},
		},
		{
			name: "one problem", old: "True",
			change: func(in *nodestatus.Inputs) { in.Problems = []string{nodestatus.ProblemShutdown} },
			want:   v1.NodeCondition{Status: "False", Reason: "KubeletNotReady", Message: "node is shutting down", LastTransitionTime: now},
		},
		{
			name: "another problem, and the message follows without a transition", old: "False",
			change: func(in *nodestatus.Inputs) { in.Problems = []string{nodestatus.ProblemRuntimeDown} },
			want:   v1.NodeCondition{Status: "False", Reason: "KubeletNotReady", Message: "container runtime is down", LastTransitionTime: earlier},
		},
		{
			name: "problems, each once",
			change: func(in *nodestatus.Inputs) {
				in.Problems = []string{nodestatus.ProblemRuntimeUnchecked, "network", nodestatus.ProblemRuntimeUnchecked}
			},
			want: v1.NodeCondition{
				Status: "False", Reason: "KubeletNotReady", LastTransitionTime: now,
				Message: "[container runtime status check may not have completed yet, network]",
			},
		},
		{
			name: "one problem told twice",
			change: func(in *nodestatus.Inputs) {
				in.Problems = []string{nodestatus.ProblemRuntimeDown, nodestatus.ProblemRuntimeDown}
			},
			want: v1.NodeCondition{Status: "False", Reason: "KubeletNotReady", Message: "container runtime is down", LastTransitionTime: now},
		},
		{
			name: "a node that does not know what it has",
			change: func(in *nodestatus.Inputs) {
				in.Capacity = nil
				in.Problems = []string{"x"}
			},
			want: v1.NodeCondition{
				Status: "False", Reason: "KubeletNotReady", LastTransitionTime: now,
				Message: "[x, missing node capacity for resources: cpu, memory, pods, ephemeral-storage]",
			},
		},
		{
			name: "storage that need not be known",
			change: func(in *nodestatus.Inputs) {
				delete(in.Capacity, "ephemeral-storage")
				in.Config.Kubelet.LocalStorageCapacityIsolation = &off
			},
			want: v1.NodeCondition{Status: "True", Reason: "KubeletReady", Message: "kubelet is posting ready status", LastTransitionTime: now},
		},
		{
			name:   "a warning",
			change: func(in *nodestatus.Inputs) { in.Warning = "CPU hardcapping unsupported" },
			want: v1.NodeCondition{
				Status: "True", Reason: "KubeletReady", LastTransitionTime: now,
				Message: "kubelet is posting ready status. WARNING: CPU hardcapping unsupported",
			},
		},
	} {
		t.Run(row.name, func(t *testing.T) {
			in := board(t)
			if row.change != nil {
				row.change(in)
			}
			old := &v1.NodeStatus{}
			if row.old != "" {
				old.Conditions = []v1.NodeCondition{{Type: v1.NodeReady, Status: row.old, Reason: "R", LastHeartbeatTime: earlier, LastTransitionTime: earlier}}
			}
			row.want.Type, row.want.LastHeartbeatTime = v1.NodeReady, now
			got := status(t, old, in)
			if diff := cmp.Diff(row.want, condition(t, &got, v1.NodeReady)); diff != "" {
				t.Errorf("Ready (-want +got):\n%s", diff)
			}
		})
	}
}

func TestProblemsAreNotWrittenTo(t *testing.T) {
	problems := make([]string, 1, 4)
	problems[0] = "x"
	status(t, nil, board(t, func(in *nodestatus.Inputs) { in.Capacity, in.Problems = nil, problems }))
	if full := problems[:2]; full[1] != "" {
		t.Errorf("the caller's list grew: %q", full)
	}
}

func TestConditionsKeepTheirPlaces(t *testing.T) {
	network := v1.NodeCondition{
		Type: v1.NodeNetworkUnavailable, Status: "False", Reason: "FlannelIsUp", LastHeartbeatTime: earlier, LastTransitionTime: earlier,
	}
	foreign := v1.NodeCondition{Type: "example.com/Frozen", Status: "True", LastHeartbeatTime: earlier}
	for _, row := range []struct {
		name string
		old  []v1.NodeCondition
		want []v1.NodeConditionType
	}{
		{"a new node: Ready is last", nil, []v1.NodeConditionType{"MemoryPressure", "DiskPressure", "PIDPressure", "Ready"}},
		{
			"others' come first, and Ready last", []v1.NodeCondition{network, foreign},
			[]v1.NodeConditionType{"NetworkUnavailable", "example.com/Frozen", "MemoryPressure", "DiskPressure", "PIDPressure", "Ready"},
		},
		{
			"a node that is known", []v1.NodeCondition{{Type: "PIDPressure"}, network, {Type: "Ready"}, foreign},
			[]v1.NodeConditionType{"PIDPressure", "NetworkUnavailable", "Ready", "example.com/Frozen", "MemoryPressure", "DiskPressure"},
		},
	} {
		t.Run(row.name, func(t *testing.T) {
			got := status(t, &v1.NodeStatus{Conditions: row.old}, board(t))
			var order []v1.NodeConditionType
			for _, c := range got.Conditions {
				order = append(order, c.Type)
				for _, kept := range []v1.NodeCondition{network, foreign} {
					if diff := cmp.Diff(kept, c); c.Type == kept.Type && diff != "" {
						t.Errorf("somebody else's condition (-want +got):\n%s", diff)
					}
				}
			}
			if diff := cmp.Diff(row.want, order); diff != "" {
				t.Errorf("order (-want +got):\n%s", diff)
			}
		})
	}
}

func TestRuntimeProblems(t *testing.T) {
	ready := &runtimeapi.RuntimeCondition{Type: "RuntimeReady", Status: true}
	network := &runtimeapi.RuntimeCondition{Type: "NetworkReady", Status: true}
	for _, row := range []struct {
		name string
		told []*runtimeapi.RuntimeCondition
		want []string
	}{
		{"ready", []*runtimeapi.RuntimeCondition{network, {Type: "Other"}, ready}, nil},
		{
			"no network", []*runtimeapi.RuntimeCondition{ready, {Type: "NetworkReady", Reason: "NetworkPluginNotReady", Message: "cni plugin not initialized"}},
			[]string{"container runtime network not ready: NetworkReady=false reason:NetworkPluginNotReady message:cni plugin not initialized"},
		},
		{"nothing told", nil, []string{"container runtime not ready: <nil>", "container runtime network not ready: <nil>"}},
		{"the runtime", []*runtimeapi.RuntimeCondition{{Type: "RuntimeReady"}, network}, []string{"container runtime not ready: RuntimeReady=false reason: message:"}},
	} {
		t.Run(row.name, func(t *testing.T) {
			got := nodestatus.RuntimeProblems(&runtimeapi.RuntimeStatus{Conditions: row.told})
			if diff := cmp.Diff(row.want, got); diff != "" {
				t.Errorf("problems (-want +got):\n%s", diff)
			}
		})
	}
}
