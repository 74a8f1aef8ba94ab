package nodestatus_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"

	"github.com/tinylet/tinylet/agent/node/nodestatus"
)

func TestEvents(t *testing.T) {
	// node is one with these conditions, each "Type=Status".
	type set = map[v1.NodeConditionType]v1.ConditionStatus
	node := func(boot string, conditions set) *v1.Node {
		n := &v1.Node{}
		n.Name, n.Status.NodeInfo.BootID = "gateway-7", boot
		for kind, status := range conditions {
			n.Status.Conditions = append(n.Status.Conditions, v1.NodeCondition{Type: kind, Status: status})
		}
		return n
	}
	is := func(reason string) nodestatus.Event {
		return nodestatus.Event{Type: "Normal", Reason: reason, Message: "Node gateway-7 status is now: " + reason}
	}
	well := set{"MemoryPressure": "False", "DiskPressure": "False", "PIDPressure": "False", "Ready": "True"}
	unwell := set{"MemoryPressure": "True", "DiskPressure": "True", "PIDPressure": "True", "Ready": "False"}
	lost := set{"MemoryPressure": "Unknown", "DiskPressure": "Unknown", "PIDPressure": "Unknown", "Ready": "Unknown"}
	rebooted := nodestatus.Event{Type: "Warning", Reason: "Rebooted", Message: "Node gateway-7 has been rebooted, boot id: new"}
	for _, row := range []struct {
		name          string
		before, after *v1.Node
		want          []nodestatus.Event
	}{
		{"nothing", node("b", well), node("b", well), nil},
		{
			"registration tells pressures, and no readiness", nil, node("b", well),
			[]nodestatus.Event{is("NodeHasSufficientMemory"), is("NodeHasNoDiskPressure"), is("NodeHasSufficientPID")},
		},
		{
			"all go wrong", node("b", well), node("b", unwell),
			[]nodestatus.Event{is("NodeHasInsufficientMemory"), is("NodeHasDiskPressure"), is("NodeHasInsufficientPID"), is("NodeNotReady")},
		},
		{
			"all get well, of the state in which the node controller left them", node("b", lost), node("b", well),
			[]nodestatus.Event{is("NodeHasSufficientMemory"), is("NodeHasNoDiskPressure"), is("NodeHasSufficientPID"), is("NodeReady")},
		},
		{"the node controller's own doing", node("b", well), node("b", lost), nil},
		{"ready", node("b", set{"Ready": "False"}), node("b", set{"Ready": "True"}), []nodestatus.Event{is("NodeReady")}},
		{
			"a reboot, before all else", node("old", well), node("new", set{"MemoryPressure": "True", "DiskPressure": "False", "PIDPressure": "False", "Ready": "True"}),
			[]nodestatus.Event{rebooted, is("NodeHasInsufficientMemory")},
		},
		{"a boot that nobody knew", node("", well), node("new", well), nil},
		{"a boot that cannot be read", node("old", well), node("", well), nil},
	} {
		t.Run(row.name, func(t *testing.T) {
			if diff := cmp.Diff(row.want, nodestatus.Events(row.before, row.after)); diff != "" {
				t.Errorf("events (-want +got):\n%s", diff)
			}
		})
	}
	if got := nodestatus.Scheduling("gateway-7", true); got != is("NodeNotSchedulable") {
		t.Errorf("cordoned: %+v", got)
	}
	if got := nodestatus.Scheduling("gateway-7", false); got != is("NodeSchedulable") {
		t.Errorf("uncordoned: %+v", got)
	}
	if got, want := nodestatus.Starting(), (nodestatus.Event{Type: "Normal", Reason: "Starting", Message: "Starting kubelet."}); got != want {
		t.Errorf("Starting is %+v", got)
	}
}
