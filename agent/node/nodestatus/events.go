package nodestatus

import (
	"fmt"

	v1 "k8s.io/api/core/v1"
)

// Event is a Kubernetes event on the node.
type Event struct {
	Type    string // v1.EventTypeNormal or v1.EventTypeWarning
	Reason  string
	Message string
}

// Starting returns the event of the agent's start (BirthCry in
// pkg/kubelet/kubelet.go).
func Starting() Event {
	return Event{Type: v1.EventTypeNormal, Reason: "Starting", Message: "Starting kubelet."}
}

// Scheduling returns the event that the node was cordoned or uncordoned
// (recordNodeSchedulableEvent in pkg/kubelet/kubelet_node_status.go).
func Scheduling(name string, unschedulable bool) Event {
	if unschedulable {
		return statusNow(name, "NodeNotSchedulable")
	}
	return statusNow(name, "NodeSchedulable")
}

func statusNow(name, reason string) Event {
	return Event{v1.EventTypeNormal, reason, fmt.Sprintf("Node %s status is now: %s", name, reason)}
}

// Events returns the events of the changes of the status from before to after, in the
// order of the kubelet (pkg/kubelet/nodestatus/setters.go). before is nil for a node that is being
// registered: then there is one event for each pressure, and none for readiness.
//
// There is a Rebooted event as long as before has another boot ID, which the API
// server's node has until the new one was sent. Therefore before must be what was
// sent last, or what was read before the first send. Record the events only after
// the API server has accepted the patch.
func Events(before, after *v1.Node) []Event {
	if before == nil {
		before = &v1.Node{}
	}
	name := after.Name
	var list []Event
	now := func(reason string) { list = append(list, statusNow(name, reason)) }
	if was, is := before.Status.NodeInfo.BootID, after.Status.NodeInfo.BootID; was != "" && is != "" && was != is {
		list = append(list, Event{
			v1.EventTypeWarning, "Rebooted", fmt.Sprintf("Node %s has been rebooted, boot id: %s", name, is),
		})
	}
	for i := range pressures {
		switch was, is := statusOf(before, pressures[i].kind), statusOf(after, pressures[i].kind); {
		case was == is:
		case is == v1.ConditionTrue:
			now(pressures[i].whenTrue.event)
		case is == v1.ConditionFalse:
			now(pressures[i].whenFalse.event)
		}
	}
	switch was, is := statusOf(before, v1.NodeReady), statusOf(after, v1.NodeReady); {
	case was == "" || was == is:
	case is == v1.ConditionTrue:
		now("NodeReady")
	case is == v1.ConditionFalse:
		now("NodeNotReady")
	}
	return list
}

// statusOf returns a condition's status, or "" if the node has no such condition.
func statusOf(n *v1.Node, kind v1.NodeConditionType) v1.ConditionStatus {
	if at := find(n.Status.Conditions, kind); at >= 0 {
		return n.Status.Conditions[at].Status
	}
	return ""
}
