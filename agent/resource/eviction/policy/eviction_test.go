package policy

import (
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"

	"github.com/tinylet/tinylet/agent/config/evictionapi"
)

func TestDescribe(t *testing.T) {
	none := Disk{}
	var o evictionapi.Observations
	o[evictionapi.MemoryAvailable] = evictionapi.Observation{Available: 20 * mi, Capacity: 512 * mi, Known: true}
	o[evictionapi.NodeFsAvailable] = evictionapi.Observation{Available: 1000, Capacity: 10240, Known: true}
	o[evictionapi.NodeFsInodesFree] = evictionapi.Observation{Available: 1024, Capacity: 20480, Known: true}
	o[evictionapi.PIDAvailable] = evictionapi.Observation{Available: 2048, Capacity: 32768, Known: true}
	memory := evictionapi.Threshold{Signal: evictionapi.MemoryAvailable, Value: quantity(32*mi, "32Mi")}
	for _, tc := range []struct {
		name        string
		pod         Pod
		act         []evictionapi.Threshold
		message     string
		annotations texts
	}{
		{
			name: "memory, containers above their requests in the order of the figures",
			pod: running("p", initial("i"), container("a", "memory", "10Mi"), container("b", "memory", "10Mi"), container("c"),
				figures("c", Measured(5), none, none), figures("b", Measured(10*mi), none, none), figures("gone", Measured(1), none, none),
				figures("a", Measured(11*mi), none, none), figures("i", Measured(3<<10), none, none), figures("a2", Measurement{}, none, none)),
			act: []evictionapi.Threshold{memory, {Signal: evictionapi.NodeFsAvailable, Value: quantity(1, "1")}},
			message: "The node was low on resource: memory. Threshold quantity: 32Mi, available: 20Mi. " +
				"Container c was using 5, request is 0, has larger consumption of memory. " +
				"Container a was using 11Mi, request is 10Mi, has larger consumption of memory. " +
				"Container i was using 3Ki, request is 0, has larger consumption of memory. ",
			annotations: texts{"offending_containers": "c,a,i", "offending_containers_usage": "5,11Mi,3Ki", "starved_resource": "memory"},
		},
		{
			name: "a pod with resources as a whole is told, be it above them or not", act: []evictionapi.Threshold{memory},
			pod:         running("p", asAWhole("memory", "10Mi"), uses(9*mi), container("a")),
			message:     "The node was low on resource: memory. Threshold quantity: 32Mi, available: 20Mi. Pod p was using 9Mi, request is 10Mi, has larger consumption of memory. ",
			annotations: texts{"offending_pod": "p", "offending_pod_usage": "9Mi", "offending_containers": "", "offending_containers_usage": "", "starved_resource": "memory"},
		},
		{
			name: "disk, a share, layers and logs", act: []evictionapi.Threshold{{Signal: evictionapi.NodeFsAvailable, Value: evictionapi.Value{Share: .2}}},
			pod: running("p", container("a", "ephemeral-storage", "100"), container("b"), asAWhole("memory", "10Mi"), uses(9*mi),
				figures("a", Measurement{}, takes(60, 1), takes(41, 1)), figures("b", Measurement{}, takes(60, 1), none)),
			message: "The node was low on resource: ephemeral-storage. Threshold quantity: 2Ki, available: 1k. " +
				"Container a was using 101, request is 100, has larger consumption of ephemeral-storage. ",
			annotations: texts{"offending_containers": "a", "offending_containers_usage": "101", "starved_resource": "ephemeral-storage"},
		},
		{
			name: "inodes have upstream's suffixes", act: []evictionapi.Threshold{{Signal: evictionapi.NodeFsInodesFree, Value: evictionapi.Value{Share: .1}}},
			pod:         running("p", container("a"), figures("a", Measured(1), takes(1, 1), takes(1, 1))),
			message:     "The node was low on resource: inodes. Threshold quantity: 2Ki, available: 1024. ",
			annotations: texts{"offending_containers": "", "offending_containers_usage": "", "starved_resource": "inodes"},
		},
		{
			name: "process IDs, no figures", act: []evictionapi.Threshold{{Signal: evictionapi.PIDAvailable, Value: quantity(3000, "3k")}}, pod: running("p", unknown),
			message: "The node was low on resource: pids. Threshold quantity: 3k, available: 2048. ", annotations: texts{},
		},
		{
			name: "nothing observed", act: []evictionapi.Threshold{{Signal: evictionapi.ImageFsAvailable}}, pod: running("p", unknown),
			message: "The node was low on resource: ephemeral-storage. ", annotations: texts{},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			want := Eviction{
				Signal: tc.act[0].Signal.String(), Message: tc.message, Annotations: tc.annotations, Grace: time.Second,
				Condition: &v1.PodCondition{Type: "DisruptionTarget", Status: "True", Reason: "TerminationByKubelet", Message: tc.message, ObservedGeneration: 7},
			}
			if d := gocmp.Diff(want, Describe(&tc.pod, tc.act, &o, time.Hour)); d != "" {
				t.Errorf("(-want +got):\n%s", d)
			}
		})
	}
}

func TestGrace(t *testing.T) {
	hard, soft := evictionapi.Threshold{}, evictionapi.Threshold{Grace: time.Minute}
	for _, tc := range []struct {
		name string
		pod  Pod
		t    evictionapi.Threshold
		most time.Duration
		want time.Duration
	}{
		{"hard", running("p", stops(time.Minute)), hard, time.Hour, time.Second},
		{"soft, the pod's", running("p", stops(time.Minute)), soft, time.Hour, time.Minute},
		{"soft, the longest", running("p", stops(time.Minute)), soft, 5 * time.Second, 5 * time.Second},
		{"soft, the pod says nothing", running("p"), soft, 5 * time.Second, 5 * time.Second},
		{"soft, the longest is not set", running("p", stops(time.Minute)), soft, 0, time.Second},
		{"soft, the longest is nonsense", running("p", stops(time.Minute)), soft, -time.Hour, time.Second},
		{"soft, the pod's is zero", running("p", stops(0)), soft, time.Hour, time.Second},
		{"soft, the pod's is nonsense", running("p", func(p *Pod) { p.Pod.Spec.TerminationGracePeriodSeconds = new(int64(1 << 62)) }), soft, time.Hour, time.Hour},
	} {
		if got := grace(tc.pod.Pod, tc.t, tc.most); got != tc.want {
			t.Errorf("%s: %v, want %v", tc.name, got, tc.want)
		}
	}
}
