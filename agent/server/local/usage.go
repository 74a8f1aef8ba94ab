package local

import (
	"context"
	"net/http"
	"time"
)

// Usage is the resource usage of the node and its pods. Memory is the working set in
// bytes, 0 if unknown. CPU is in nanocores, averaged over the time since the previous
// reading for any client, scrapes of the kubelet API included. It is nil if unknown, as in
// the first reading or if the previous one is older than 10 min.
type Usage struct {
	// Time is when the usage was measured.
	Time time.Time `json:"time"`
	Node NodeUsage `json:"node"`
	// Classes are the QoS classes, the most protected first.
	Classes []CgroupUsage `json:"classes,omitempty"`
	// Agent is the usage of the agent; nil is unknown.
	Agent *CgroupUsage `json:"agent,omitempty"`
	Pods  []PodUsage   `json:"pods"`
}

// NodeUsage is the capacity and usage of the node.
type NodeUsage struct {
	Name         string  `json:"name"`
	CPUNanoCores *uint64 `json:"cpuNanoCores,omitempty"`
	Cores        int     `json:"cores"`
	MemoryBytes  uint64  `json:"memoryBytes"`
	// MemoryAvailableBytes is the unused part of the capacity.
	MemoryAvailableBytes uint64 `json:"memoryAvailableBytes"`
	MemoryCapacityBytes  uint64 `json:"memoryCapacityBytes"`
	// Pressure is nil if the kernel does not provide it.
	Pressure *Pressure `json:"pressure,omitempty"`
}

// Pressure is the share of the last 10 s in which at least one task waited
// for a resource, in percent (avg10 of "some" in the kernel's pressure stall
// information, PSI).
type Pressure struct {
	CPU    float64 `json:"cpu"`
	Memory float64 `json:"memory"`
	IO     float64 `json:"io"`
}

// CgroupUsage is the resource usage of a cgroup.
type CgroupUsage struct {
	Name         string  `json:"name"`
	CPUNanoCores *uint64 `json:"cpuNanoCores,omitempty"`
	MemoryBytes  uint64  `json:"memoryBytes"`
}

// PodUsage is the resource usage of a pod.
type PodUsage struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	UID       string `json:"uid"`
	QOSClass  string `json:"qosClass,omitempty"`
	// Status is the pod's status as printed by kubectl.
	Status       string           `json:"status"`
	Restarts     int              `json:"restarts"`
	CPUNanoCores *uint64          `json:"cpuNanoCores,omitempty"`
	MemoryBytes  uint64           `json:"memoryBytes"`
	Containers   []ContainerUsage `json:"containers"`
}

// ContainerUsage is the resource usage of a container.
type ContainerUsage struct {
	Name string `json:"name"`
	// State is Waiting, Running or Terminated.
	State        string  `json:"state"`
	Restarts     int     `json:"restarts"`
	CPUNanoCores *uint64 `json:"cpuNanoCores,omitempty"`
	MemoryBytes  uint64  `json:"memoryBytes"`
}

func (s *Server) usage(w http.ResponseWriter, r *http.Request) {
	if s.config.Usage == nil {
		writeJSON(w, http.StatusNotFound, Error{"resource usage is not available"})
		return
	}
	u, err := s.config.Usage(r.Context())
	if err != nil {
		writeJSON(w, http.StatusInternalServerError, Error{"get resource usage: " + err.Error()})
		return
	}
	writeJSON(w, http.StatusOK, u)
}

// Usage returns the resource usage of the node and its pods. CPU usage is an average
// since the previous reading for any client, so a first call may not have it.
func (c *Client) Usage(ctx context.Context) (*Usage, error) {
	return get[*Usage](ctx, c, PathUsage)
}
