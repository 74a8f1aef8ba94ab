package statuspage

import "time"

// State is what the page shows. Memory is in bytes, and 0 where it is not
// known; CPU is in billionths of a core, and nil where it is not known.
// The lists may be nil.
type State struct {
	// Time is the board's, by which the page tells how long ago the others
	// are.
	Time time.Time `json:"time"`
	Node Node      `json:"node"`
	// Checks are those of /healthz.
	Checks []Check `json:"checks"`
	// Conditions are those of the Node; on a board alone those of pressure.
	Conditions []Condition `json:"conditions"`
	// Server is how the agent does with its API server; nil on a board alone.
	Server  *Server `json:"server,omitempty"`
	Classes []Group `json:"classes"`
	Pods    []Pod   `json:"pods"`
	// Events are the last ones, the newest first.
	Events []Event `json:"events"`
}

// Node is the board itself, and the agent.
type Node struct {
	Name     string    `json:"name"`
	Version  string    `json:"version"`
	Platform string    `json:"platform"`
	Started  time.Time `json:"started"` // the agent

	CPUNanoCores         *uint64   `json:"cpuNanoCores,omitempty"`
	Cores                int       `json:"cores"`
	MemoryBytes          uint64    `json:"memoryBytes"`
	MemoryAvailableBytes uint64    `json:"memoryAvailableBytes"`
	MemoryCapacityBytes  uint64    `json:"memoryCapacityBytes"`
	Pressure             *Pressure `json:"pressure,omitempty"`
	Agent                *Group    `json:"agent,omitempty"`
	Runtime              *Group    `json:"runtime,omitempty"`
}

// Pressure is the share of time in which tasks waited, in percent.
type Pressure struct {
	CPU    float64 `json:"cpu"`
	Memory float64 `json:"memory"`
	IO     float64 `json:"io"`
}

// Check is one condition of the agent's health; Problem is "" if it is well.
type Check struct {
	Name    string `json:"name"`
	Problem string `json:"problem,omitempty"`
}

// Condition is one of the Node's. Good says that it is as it should be.
type Condition struct {
	Type    string    `json:"type"`
	Status  string    `json:"status"`
	Good    bool      `json:"good"`
	Reason  string    `json:"reason,omitempty"`
	Message string    `json:"message,omitempty"`
	Since   time.Time `json:"since,omitzero"`
}

// Server is the way to the API server.
type Server struct {
	Registered bool      `json:"registered"`
	Answered   time.Time `json:"answered,omitzero"`
	Failure    string    `json:"failure,omitempty"`
	// Expires is when the node's certificate does.
	Expires time.Time `json:"certificateExpires,omitzero"`
	Problem string    `json:"problem,omitempty"`
	Metered bool      `json:"metered,omitempty"`
	// Sent and Received are bytes since the agent's start; the others since
	// midnight by the board's clock.
	Sent          uint64 `json:"bytesSent"`
	Received      uint64 `json:"bytesReceived"`
	SentToday     uint64 `json:"bytesSentToday"`
	ReceivedToday uint64 `json:"bytesReceivedToday"`
}

// Group is a number of processes.
type Group struct {
	Name         string  `json:"name"`
	CPUNanoCores *uint64 `json:"cpuNanoCores,omitempty"`
	MemoryBytes  uint64  `json:"memoryBytes"`
}

// Pod is one pod. Its Status is the word that kubectl prints.
type Pod struct {
	UID          string      `json:"uid"`
	Namespace    string      `json:"namespace"`
	Name         string      `json:"name"`
	Status       string      `json:"status"`
	Mood         Mood        `json:"mood"`
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

// Container is one container of a pod.
type Container struct {
	Name         string  `json:"name"`
	State        string  `json:"state"`
	Message      string  `json:"message,omitempty"`
	Mood         Mood    `json:"mood"`
	Restarts     int     `json:"restarts"`
	CPUNanoCores *uint64 `json:"cpuNanoCores,omitempty"`
	MemoryBytes  uint64  `json:"memoryBytes"`
}

// Event is one thing that happened, Count times.
type Event struct {
	// Pod is namespace/name, or "" for the node.
	Pod     string    `json:"pod,omitempty"`
	Warning bool      `json:"warning,omitempty"`
	Reason  string    `json:"reason"`
	Message string    `json:"message"`
	Count   int       `json:"count"`
	Last    time.Time `json:"last"`
}

// Mood is the colour of a state.
type Mood string

// The moods.
const (
	Good Mood = "good" // as it should be
	Busy Mood = "busy" // on its way
	Bad  Mood = "bad"  // somebody should look
	Over Mood = "over" // has ended well
)
