package nodestatus

import (
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tinylet/tinylet/agent/config/evictionapi"
)

// pressure is a node condition that is false on a healthy node.
type pressure struct {
	kind   v1.NodeConditionType
	active func(evictionapi.Conditions) bool
	// Texts of the condition while it is true, and while it is false.
	whenTrue, whenFalse words
}

type words struct {
	reason, message string
	event           string // reason of the event of the transition
}

// pressures are in the order in which the kubelet sets them
// (MemoryPressureCondition, DiskPressureCondition and PIDPressureCondition in
// pkg/kubelet/nodestatus/setters.go).
var pressures = []pressure{
	{
		v1.NodeMemoryPressure, func(p evictionapi.Conditions) bool { return p.Memory },
		words{"KubeletHasInsufficientMemory", "kubelet has insufficient memory available", "NodeHasInsufficientMemory"},
		words{"KubeletHasSufficientMemory", "kubelet has sufficient memory available", "NodeHasSufficientMemory"},
	},
	{
		v1.NodeDiskPressure, func(p evictionapi.Conditions) bool { return p.Disk },
		words{"KubeletHasDiskPressure", "kubelet has disk pressure", "NodeHasDiskPressure"},
		words{"KubeletHasNoDiskPressure", "kubelet has no disk pressure", "NodeHasNoDiskPressure"},
	},
	{
		v1.NodePIDPressure, func(p evictionapi.Conditions) bool { return p.PID },
		words{"KubeletHasInsufficientPID", "kubelet has insufficient PID available", "NodeHasInsufficientPID"},
		words{"KubeletHasSufficientPID", "kubelet has sufficient PID available", "NodeHasSufficientPID"},
	},
}

// conditions sets the kubelet's conditions in place, or appends them. Conditions of
// others stay. Ready is appended last, because old control planes take the last
// condition for it. The capacity must be set before.
func conditions(s *v1.NodeStatus, in *Inputs) {
	now := metav1.NewTime(in.Now.UTC().Truncate(time.Second)) // as JSON has it
	for i := range pressures {
		pressures[i].apply(s, in.Pressures, now)
	}
	c := v1.NodeCondition{
		Type: v1.NodeReady, Status: v1.ConditionTrue, Reason: "KubeletReady", Message: "kubelet is posting ready status",
		LastHeartbeatTime: now, LastTransitionTime: now,
	}
	if problems := append(in.Problems[:len(in.Problems):len(in.Problems)], missing(s, in)...); len(problems) > 0 {
		c.Status, c.Reason, c.Message = v1.ConditionFalse, "KubeletNotReady", aggregate(problems)
	}
	if in.Warning != "" {
		c.Message += ". WARNING: " + in.Warning
	}
	at := find(s.Conditions, v1.NodeReady)
	if at < 0 {
		s.Conditions = append(s.Conditions, c)
		return
	}
	if s.Conditions[at].Status == c.Status {
		c.LastTransitionTime = s.Conditions[at].LastTransitionTime
	}
	s.Conditions[at] = c
}

// apply sets the condition. Reason and message change only with the status.
func (p *pressure) apply(s *v1.NodeStatus, under evictionapi.Conditions, now metav1.Time) {
	at := find(s.Conditions, p.kind)
	if at < 0 {
		at = len(s.Conditions)
		s.Conditions = append(s.Conditions, v1.NodeCondition{Type: p.kind, Status: v1.ConditionUnknown})
	}
	c := &s.Conditions[at]
	c.LastHeartbeatTime = now
	status, say := v1.ConditionFalse, p.whenFalse
	if p.active(under) {
		status, say = v1.ConditionTrue, p.whenTrue
	}
	if c.Status != status {
		c.Status, c.Reason, c.Message, c.LastTransitionTime = status, say.reason, say.message, now
	}
}

// PressureConditions returns the pressure conditions without times, for a node that
// no API server has.
func PressureConditions(under evictionapi.Conditions) []v1.NodeCondition {
	var s v1.NodeStatus
	for i := range pressures {
		pressures[i].apply(&s, under, metav1.Time{})
	}
	return s.Conditions
}

// find returns the index of a condition, or -1.
func find(list []v1.NodeCondition, kind v1.NodeConditionType) int {
	return slices.IndexFunc(list, func(c v1.NodeCondition) bool { return c.Type == kind })
}

// missing returns a problem if the capacity lacks a required resource.
func missing(s *v1.NodeStatus, in *Inputs) []string {
	needed := []v1.ResourceName{v1.ResourceCPU, v1.ResourceMemory, v1.ResourcePods}
	if isolatesStorage(in) {
		needed = append(needed, v1.ResourceEphemeralStorage)
	}
	var names []string
	for _, name := range needed {
		if _, ok := s.Capacity[name]; !ok {
			names = append(names, string(name))
		}
	}
	if names == nil {
		return nil
	}
	return []string{"missing node capacity for resources: " + strings.Join(names, ", ")}
}
