package nodestatus

import (
	"fmt"

	v1 "k8s.io/api/core/v1"
)

// Event is something that happened to the node, for the API's event on it.
type Event struct {
	Type    string // v1.EventTypeNormal or v1.EventTypeWarning
	Reason  string
	Message string
}

// Starting is the event of the agent's start (BirthCry in
// pkg/kubelet/kubelet.go).
func Starting() Event {
	return Event{Type: v1.EventTypeNormal, Reason: "Starting", Message: "Starting kubelet."}
}

// Events are what happened between two states of the node, in the order in
// which the kubelet tells them (pkg/kubelet/nodestatus/setters.go and
// recordNodeSchedulableEvent in pkg/kubelet/kubelet_node_status.go). before is
// nil for a node that is being registered: then each pressure is told once,
// and readiness is not.
//
// A reboot is told as long as before has the boot ID of another boot, which
// the API server's node has until the new one was sent. So the caller hands
// over what was sent, or read before the first sending, and tells an event
// only once a patch was taken.
func Events(before, after *v1.Node) []Event {
	if before == nil {
		before = &v1.Node{}
	}
	name := after.Name
	var list []Event
	now := func(reason string) {
		list = append(list, Event{v1.EventTypeNormal, reason, fmt.Sprintf("Node %s status is now: %s", name, reason)})
	}
	if was, is := before.Status.NodeInfo.BootID, after.Status.NodeInfo.BootID; was != "" && is != "" && was != is {
		list = append(list, Event{
			v1.EventTypeWarning, "Rebooted", fmt.Sprintf("Node %s has been rebooted, boot id: %s", name, is),
		})
	}
	for i := range pressures {
		switch was, is := statusOf(before, pressures[i].kind), statusOf(after, pressures[i].kind); {
		case was == is:
		case is == v1.ConditionTrue:
			now(pressures[i].yes.event)
		case is == v1.ConditionFalse:
			now(pressures[i].no.event)
		}
	}
	switch was, is := statusOf(before, v1.NodeReady), statusOf(after, v1.NodeReady); {
	case was == "" || was == is:
	case is == v1.ConditionTrue:
		now("NodeReady")
	case is == v1.ConditionFalse:
		now("NodeNotReady")
	}
	switch was, is := before.Spec.Unschedulable, after.Spec.Unschedulable; {
	case is && !was:
		now("NodeNotSchedulable")
	case was && !is:
		now("NodeSchedulable")
	}
	return list
}

// statusOf is a condition's status, or "".
func statusOf(n *v1.Node, kind v1.NodeConditionType) v1.ConditionStatus {
	if at := find(n.Status.Conditions, kind); at >= 0 {
		return n.Status.Conditions[at].Status
	}
	return ""
}
