package statuspage

import (
	"time"

	"github.com/tinylet/tinylet/agent/server/local"
)

// State is the data of the page. Memory is in bytes, 0 if unknown. CPU is in
// nanocores, nil if unknown. The lists may be nil.
type State struct {
	// Time is the node's current time. The page shows other times relative to
	// it.
	Time time.Time `json:"time"`
	Node Node      `json:"node"`
	// Checks are those of /healthz, and "figures" if the usage could not be measured.
	Checks []Check `json:"checks"`
	// Conditions are the conditions of the Node; on a standalone node only the
	// pressure conditions.
	Conditions []Condition `json:"conditions"`
	// Server is the connection to the API server; nil on a standalone node.
	Server  *local.Cluster      `json:"server,omitempty"`
	Classes []local.CgroupUsage `json:"classes"`
	Pods    []Pod               `json:"pods"`
	// Events are the recent events, the newest first.
	Events []Event `json:"events"`
}

// Node describes the node and the agent.
type Node struct {
	local.NodeUsage
	Version  string    `json:"version"`
	Platform string    `json:"platform"`
	Started  time.Time `json:"started"` // of the agent

	Agent *local.CgroupUsage `json:"agent,omitempty"`
}

// Check is a health check of the agent. Problem is its failure, "" if it passed.
type Check struct {
	Name    string `json:"name"`
	Problem string `json:"problem,omitempty"`
}

// Condition is a node condition. Good means that it has its healthy status.
type Condition struct {
	local.Condition
	Good bool `json:"good"`
}

// Pod is one pod. Status is the pod's status as printed by kubectl.
type Pod struct {
	UID          string      `json:"uid"`
	Namespace    string      `json:"namespace"`
	Name         string      `json:"name"`
	Status       string      `json:"status"`
	Severity     Severity    `json:"mood"`
	Ready        int         `json:"ready"`
	Total        int         `json:"total"`
	Restarts     int         `json:"restarts"`
	LastRestart  time.Time   `json:"lastRestart,omitzero"`
	Started      time.Time   `json:"started,omitzero"`
	QOSClass     string      `json:"qosClass,omitempty"`
	IP           string      `json:"ip,omitempty"`
	CPUNanoCores *uint64     `json:"cpuNanoCores,omitempty"`
	MemoryBytes  uint64      `json:"memoryBytes"`
	Containers   []Container `json:"containers"`
}

// Container is one container of a pod. State can also be the reason of a state.
type Container struct {
	local.ContainerUsage
	Message  string   `json:"message,omitempty"`
	Severity Severity `json:"mood"`
}

// Event is an event that occurred Count times.
type Event struct {
	// Pod is namespace/name, or "" for the node.
	Pod     string    `json:"pod,omitempty"`
	Warning bool      `json:"warning,omitempty"`
	Reason  string    `json:"reason"`
	Message string    `json:"message"`
	Count   int       `json:"count"`
	Last    time.Time `json:"last"`
}

// Severity is the severity of a state. It selects the color.
type Severity string

// The severities.
const (
	Good Severity = "good" // healthy
	Busy Severity = "busy" // in transition
	Bad  Severity = "bad"  // needs attention
	Over Severity = "over" // completed
)
