// Package local serves the agent's local API and contains the client for it. A unix
// socket for root serves pods, events, resource usage, the status and the version as
// JSON, metrics as text, drains, and exec and attach sessions. A TCP address, loopback
// by default, serves the kubelet's /healthz and the status page. A Server holds no
// state of pods; it calls the functions of its Config.
package local

import (
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/tinylet/tinylet/agent/source/offline"
)

// Paths on the socket. All except PathDrain serve GET. All except PathMetrics
// respond with JSON. Errors of the handlers are an Error. PathExec and PathAttach are
// described separately.
const (
	// PathPods returns a list of Pod. With the query name=TEXT it returns only
	// those whose name, or namespace/name, begins with TEXT.
	PathPods = "/v1/pods"
	// PathEvents returns a list of event.Event, the oldest first. With the
	// query watch=true it returns the recent events and then each new or
	// repeated event until either side closes the connection: one event.Event
	// per line, not a list.
	PathEvents = "/v1/events"
	// PathVersion returns a Version.
	PathVersion = "/v1/version"
	// PathStatus returns a Status.
	PathStatus = "/v1/status"
	// PathUsage returns a Usage, measured for this request, or 404 if usage is
	// not available.
	PathUsage = "/v1/usage"
	// PathDrain terminates the node's pods on POST. It returns a DrainProgress per line
	// until Drain.Begin returns. DELETE cancels the drain.
	PathDrain = "/v1/drain"
	// PathMetrics returns the agent's metrics in the text format of Prometheus.
	PathMetrics = "/metrics"
)

// Pod is a pod with the agent's state of it.
type Pod struct {
	// Pod is the pod with its status.
	Pod *v1.Pod `json:"pod"`
	// WorkerState is adopted, waiting, syncing, terminating or terminated (the states
	// of agent/podworker); "" without a worker.
	WorkerState string `json:"workerState"`
	// MemoryBytes is the working set of the pod's cgroup; 0 if unknown.
	MemoryBytes uint64 `json:"memoryBytes"`
	// Containers has one entry for each container that has an ID in the pod's status.
	Containers []Container `json:"containers"`
}

// Container has the data of a container that is not in the pod's status.
type Container struct {
	Name string `json:"name"`
	// ID is the runtime's container ID, without a scheme.
	ID string `json:"id"`
	// LogPath is the absolute path of the newest log file; "" before the runtime has
	// responded.
	LogPath string `json:"logPath"`
	// MemoryBytes is the working set of the container's cgroup; 0 if unknown.
	MemoryBytes uint64 `json:"memoryBytes"`
}

// Version is the version of the running agent.
type Version struct {
	// Release is the version of tinylet.
	Release string `json:"release"`
	// Kubelet is the version that the node reports.
	Kubelet string    `json:"kubelet"`
	Built   time.Time `json:"built"`
	Go      string    `json:"go"`
	OS      string    `json:"os"`
	Arch    string    `json:"arch"`
	PID     int       `json:"pid"`
}

// Status is the status of the running agent.
type Status struct {
	Version
	// Started is the start time of the agent.
	Started time.Time `json:"started"`
	// RuntimeCalls is the number of calls to the container runtime.
	RuntimeCalls uint64 `json:"runtimeCalls"`
	// Cluster is the connection to the API server; nil on a standalone node.
	Cluster *Cluster `json:"cluster,omitempty"`
	// Conditions are the pressure conditions of a standalone node. Those of a
	// joined node are in Cluster.
	Conditions []Condition `json:"conditions,omitempty"`
	// Problem describes an action that the administrator must take, whether or
	// not the node is joined; "" is none. On a standalone node it includes
	// problems of the pod network. A joined node has those in its condition
	// Ready.
	Problem string `json:"problem,omitempty"`
	// Todo lists actions in addition to Problem, such as to remove volumes
	// that a kubelet has left on the node.
	Todo []string `json:"todo,omitempty"`
	// Health has the errors of failed checks, by the name of the check. It is
	// empty if the agent is healthy.
	Health map[string]string `json:"health,omitempty"`
}

// Journal is the state of the journal of the cluster's pods on disk.
type Journal struct {
	State offline.State `json:"state"`
	// Secrets has namespace/name of the Secrets in it, sorted.
	Secrets []string `json:"secrets,omitempty"`
	// Aside are the directories of journals that were moved aside.
	Aside []string `json:"aside,omitempty"`
}

// Cluster is the state of the connection to the API server.
type Cluster struct {
	// Registered means that the Node exists in the API server.
	Registered bool `json:"registered"`
	// LastResponse is the time of the API server's last response; nil is never.
	// Failure is the error of the last attempt; "" if it succeeded.
	LastResponse *time.Time `json:"answered,omitempty"`
	Failure      string     `json:"failure,omitempty"`
	// Expires is the expiry of the node's client certificate; nil without one.
	Expires *time.Time `json:"certificateExpires,omitempty"`
	// Problem describes an action that the administrator must take; "" is
	// none.
	Problem string `json:"problem,omitempty"`
	// Journal is the state of the journal of pods.
	Journal *Journal `json:"journal,omitempty"`
	// Metered means that the agent limits its traffic to the API server.
	Metered bool `json:"metered,omitempty"`
	// Sent and Received are all bytes of the agent's connections to API
	// servers since its start: the sums of tinylet_api_bytes_total.
	Sent     uint64 `json:"bytesSent"`
	Received uint64 `json:"bytesReceived"`
	// SentToday and ReceivedToday are the bytes since midnight by the node's
	// clock, or since the agent's start or the last setting of the clock.
	SentToday     uint64 `json:"bytesSentToday"`
	ReceivedToday uint64 `json:"bytesReceivedToday"`
	// ServingExpires is the expiry of the kubelet API's serving certificate;
	// nil without one.
	ServingExpires *time.Time `json:"servingCertificateExpires,omitempty"`
	// Conditions are the Node's conditions as reported.
	Conditions []Condition `json:"conditions,omitempty"`
}

// Condition is a node condition.
type Condition struct {
	Type    string    `json:"type"`
	Status  string    `json:"status"` // True, False or Unknown
	Reason  string    `json:"reason"`
	Message string    `json:"message"`
	Since   time.Time `json:"since,omitzero"`
}

// Conditions converts node conditions to those of the local API.
func Conditions(all []v1.NodeCondition) (out []Condition) {
	for _, c := range all {
		out = append(out, Condition{
			Type: string(c.Type), Status: string(c.Status), Reason: c.Reason, Message: c.Message, Since: c.LastTransitionTime.Time,
		})
	}
	return out
}

// Error is the body of an error response, except for those of PathExec and PathAttach, of
// unknown paths and of methods that are not allowed, which are text.
type Error struct {
	Error string `json:"error"`
}

// Healthy reports whether the condition has its healthy status: True for Ready,
// False for all others.
func (c *Condition) Healthy() bool {
	if c.Type == "Ready" {
		return c.Status == "True"
	}
	return c.Status == "False"
}
