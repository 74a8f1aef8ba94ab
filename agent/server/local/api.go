// Package local is what someone at the board, and whatever watches over it,
// sees of the agent: a unix socket for root with the pods, the events, what
// they use and the version as JSON, the metrics as text and sessions into
// containers, the client for it, and the kubelet's /healthz on the loopback
// address, with the status page beside it. It holds no state of pods: it asks
// the functions that it was given.
package local

import (
	"time"

	v1 "k8s.io/api/core/v1"
)

// DefaultSocketPath is where the agent answers unless it was told otherwise.
const DefaultSocketPath = "/run/tinylet/tinylet.sock"

// Paths on the socket. All but PathDrain answer GET, and with JSON but for
// PathMetrics; errors are an Error. PathExec and PathAttach are apart.
const (
	// PathPods answers a list of Pod; with the query name=TEXT only those
	// whose name, or namespace/name, begins with TEXT.
	PathPods = "/v1/pods"
	// PathEvents answers a list of event.Event, the oldest first. With the
	// query watch=true it goes on with each that happens, or happens again,
	// until either side ends it: one event.Event in each line, without a list.
	PathEvents = "/v1/events"
	// PathVersion answers a Version.
	PathVersion = "/v1/version"
	// PathStatus answers a Status.
	PathStatus = "/v1/status"
	// PathUsage answers a Usage, read for this question, or 404 where nobody
	// measures.
	PathUsage = "/v1/usage"
	// PathDrain ends the node's pods when it is posted to, and answers with a
	// Drained in each line until all have; DELETE takes that back.
	PathDrain = "/v1/drain"
	// PathMetrics answers the agent's metrics in the text format of Prometheus.
	PathMetrics = "/metrics"
)

// Pod is one pod as the agent knows it.
type Pod struct {
	// Pod is the pod with its status.
	Pod *v1.Pod `json:"pod"`
	// WorkerState is syncing, terminating or terminated.
	WorkerState string `json:"workerState"`
	// MemoryBytes is the working set of the pod's cgroup; 0 if not known.
	MemoryBytes uint64 `json:"memoryBytes"`
	// Containers has one entry for each container of the pod that the runtime
	// knows.
	Containers []Container `json:"containers"`
}

// Container is what a pod's status does not tell of a container.
type Container struct {
	Name string `json:"name"`
	// ID is the runtime's, without a scheme.
	ID string `json:"id"`
	// LogPath is the newest log file, absolute.
	LogPath string `json:"logPath"`
	// MemoryBytes is the working set of the container's cgroup; 0 if not
	// known.
	MemoryBytes uint64 `json:"memoryBytes"`
}

// Version is what the running agent is.
type Version struct {
	// Release is tinylet's.
	Release string `json:"release"`
	// Kubelet is the version that the node reports.
	Kubelet string    `json:"kubelet"`
	Built   time.Time `json:"built"`
	Go      string    `json:"go"`
	OS      string    `json:"os"`
	Arch    string    `json:"arch"`
	PID     int       `json:"pid"`
}

// Status is how the running agent does.
type Status struct {
	Version
	// Started is when the agent started.
	Started time.Time `json:"started"`
	// RuntimeCalls is how often it has called the container runtime.
	RuntimeCalls uint64 `json:"runtimeCalls"`
	// Cluster is how the agent does with its API server; nil on a board alone.
	Cluster *Cluster `json:"cluster,omitempty"`
	// Conditions are the node's on a board alone: what it is short of. Those of
	// a node of a cluster are in Cluster.
	Conditions []Condition `json:"conditions,omitempty"`
	// Problem is what somebody has to do whether or not there is a cluster, ""
	// for nothing. What keeps pods from the network is there on a board alone;
	// a node of a cluster has it in its condition Ready.
	Problem string `json:"problem,omitempty"`
	// Todo is what somebody has to do at the node beside Problem, such as to
	// take away volumes that a kubelet has left.
	Todo []string `json:"todo,omitempty"`
	// Health has what is wrong, by the name of the check; empty is healthy.
	Health map[string]string `json:"health,omitempty"`
}

// States of a Journal.
const (
	JournalSealed = "sealed"
	JournalPlain  = "plain"
	JournalOff    = "off"  // by configuration
	JournalNone   = "none" // it cannot be used
)

// Journal is what is kept of the cluster's pods on the disk.
type Journal struct {
	State string `json:"state"`
	// Secrets has namespace/name of the Secrets in it, sorted.
	Secrets []string `json:"secrets,omitempty"`
	// Aside are the folders of journals that were put aside.
	Aside []string `json:"aside,omitempty"`
}

// Cluster is how the agent does with its API server.
type Cluster struct {
	// Registered says that the node is known there.
	Registered bool `json:"registered"`
	// Answered is when the server last answered, nil for never; Failure is
	// what the last attempt failed with, "" if it was answered.
	Answered *time.Time `json:"answered,omitempty"`
	Failure  string     `json:"failure,omitempty"`
	// Expires is when the node's certificate does, nil without one.
	Expires *time.Time `json:"certificateExpires,omitempty"`
	// Problem is what somebody has to do, "" for nothing.
	Problem string `json:"problem,omitempty"`
	// Journal is what is kept of the pods on the disk.
	Journal *Journal `json:"journal,omitempty"`
	// Metered says that the agent spares the way to the server.
	Metered bool `json:"metered,omitempty"`
	// Sent and Received are all bytes of the agent's connections to API
	// servers since it started: the sums of tinylet_api_bytes_total.
	Sent     uint64 `json:"bytesSent"`
	Received uint64 `json:"bytesReceived"`
	// SentToday and ReceivedToday are those since midnight by the board's
	// clock, or since the agent started or the clock was set.
	SentToday     uint64 `json:"bytesSentToday"`
	ReceivedToday uint64 `json:"bytesReceivedToday"`
	// ServingExpires is when the certificate of the node's own API does, nil
	// without one.
	ServingExpires *time.Time `json:"servingCertificateExpires,omitempty"`
	// Conditions are the Node's, as they are reported.
	Conditions []Condition `json:"conditions,omitempty"`
}

// Condition is one of the Node's.
type Condition struct {
	Type    string    `json:"type"`
	Status  string    `json:"status"` // True, False or Unknown
	Reason  string    `json:"reason"`
	Message string    `json:"message"`
	Since   time.Time `json:"since,omitzero"`
}

// Error is the body of every answer that is not 200.
type Error struct {
	Error string `json:"error"`
}

// Good says that the condition is as it should be: all but Ready are of
// something that is wrong.
func (c *Condition) Good() bool {
	if c.Type == "Ready" {
		return c.Status == "True"
	}
	return c.Status == "False"
}
