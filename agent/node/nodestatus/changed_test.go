package nodestatus_test

import (
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/tinylet/tinylet/agent/node/nodestatus"
)

func TestChanged(t *testing.T) {
	for _, row := range []struct {
		name   string
		change func(*v1.NodeStatus)
		want   bool
	}{
		{"nothing", func(*v1.NodeStatus) {}, false},
		{"heartbeats", func(s *v1.NodeStatus) {
			for i := range s.Conditions {
				s.Conditions[i].LastHeartbeatTime = earlier
			}
		}, false},
		{"the order of conditions", func(s *v1.NodeStatus) { s.Conditions[0], s.Conditions[3] = s.Conditions[3], s.Conditions[0] }, false},
		{"how a quantity is written", func(s *v1.NodeStatus) { s.Capacity = quantities(map[v1.ResourceName]string{"cpu": "4000m"}) }, false},
		{"empty and none", func(s *v1.NodeStatus) { s.VolumesInUse = []v1.UniqueVolumeName{} }, false},
		{"a transition", func(s *v1.NodeStatus) { s.Conditions[1].LastTransitionTime = earlier }, true},
		{"a reason", func(s *v1.NodeStatus) { s.Conditions[3].Reason = "x" }, true},
		{"a message", func(s *v1.NodeStatus) { s.Conditions[3].Message = "x" }, true},
		{"a condition more", func(s *v1.NodeStatus) { s.Conditions = append(s.Conditions, v1.NodeCondition{Type: "x"}) }, true},
		{"a condition less", func(s *v1.NodeStatus) { s.Conditions = s.Conditions[:3] }, true},
		{"a condition of another type", func(s *v1.NodeStatus) { s.Conditions[0].Type = "x" }, true},
		{"a quantity", func(s *v1.NodeStatus) { s.Capacity = quantities(map[v1.ResourceName]string{"cpu": "3"}) }, true},
		{"an address", func(s *v1.NodeStatus) { s.Addresses[0].Address = "10.0.0.1" }, true},
		{"an image", func(s *v1.NodeStatus) { s.Images = s.Images[:1] }, true},
		{"the boot", func(s *v1.NodeStatus) { s.NodeInfo.BootID = "x" }, true},
		{"declared features", func(s *v1.NodeStatus) { s.DeclaredFeatures = []string{"x"} }, true},
	} {
		t.Run(row.name, func(t *testing.T) {
			before := status(t, nil, board(t))
			before.Capacity = quantities(map[v1.ResourceName]string{"cpu": "4"})
			after := before.DeepCopy()
			row.change(after)
			kept := after.DeepCopy()
			if got := nodestatus.Changed(&before, after); got != row.want {
				t.Errorf("Changed is %t", got)
			}
			if got := nodestatus.Changed(after, &before); got != row.want {
				t.Errorf("Changed is %t the other way round", got)
			}
			for i := range kept.Conditions {
				if after.Conditions[i] != kept.Conditions[i] {
					t.Error("the conditions were sorted or changed in place")
				}
			}
		})
	}
}
