package local

import (
	"context"
	"net/http"
	"time"
)

// Usage is what the node and its pods use. Memory is in bytes, of working
// sets, and 0 where it is not known. CPU is in billionths of a core, over the
// time since somebody last asked, and nil where it is not known, as at the
// first question.
type Usage struct {
	// Time is when the figures were read.
	Time time.Time `json:"time"`
	Node NodeUsage `json:"node"`
	// Classes are the QoS classes, the most protected first.
	Classes []GroupUsage `json:"classes,omitempty"`
	// Agent and Runtime are what the node spends on them; nil is not known.
	Agent   *GroupUsage `json:"agent,omitempty"`
	Runtime *GroupUsage `json:"runtime,omitempty"`
	Pods    []PodUsage  `json:"pods"`
}

// NodeUsage is what the node has and what of it is used.
type NodeUsage struct {
	Name         string  `json:"name"`
	CPUNanoCores *uint64 `json:"cpuNanoCores,omitempty"`
	Cores        int     `json:"cores"`
	MemoryBytes  uint64  `json:"memoryBytes"`
	// MemoryAvailableBytes is what of the capacity is not used.
	MemoryAvailableBytes uint64 `json:"memoryAvailableBytes"`
	MemoryCapacityBytes  uint64 `json:"memoryCapacityBytes"`
	// Pressure is nil where the kernel does not tell it.
	Pressure *Pressure `json:"pressure,omitempty"`
}

// Pressure is the share of the last 10 s in which at least one task waited
// for a resource, in percent (avg10 of "some" in Linux' pressure stall
// information).
type Pressure struct {
	CPU    float64 `json:"cpu"`
	Memory float64 `json:"memory"`
	IO     float64 `json:"io"`
}

// GroupUsage is what a group of processes uses together.
type GroupUsage struct {
	Name         string  `json:"name"`
	CPUNanoCores *uint64 `json:"cpuNanoCores,omitempty"`
	MemoryBytes  uint64  `json:"memoryBytes"`
}

// PodUsage is what a pod uses.
type PodUsage struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	UID       string `json:"uid"`
	QOSClass  string `json:"qosClass,omitempty"`
	// Status is the word that tells most, as kubectl prints it.
	Status       string           `json:"status"`
	Restarts     int              `json:"restarts"`
	CPUNanoCores *uint64          `json:"cpuNanoCores,omitempty"`
	MemoryBytes  uint64           `json:"memoryBytes"`
	Containers   []ContainerUsage `json:"containers"`
}

// ContainerUsage is what a container uses.
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
		answer(w, http.StatusNotFound, Error{"this agent does not measure what pods use"})
		return
	}
	u, err := s.config.Usage(r.Context())
	if err != nil {
		answer(w, http.StatusInternalServerError, Error{"measure what pods use: " + err.Error()})
		return
	}
	shown := *u
	if shown.Pods == nil {
		shown.Pods = []PodUsage{}
	}
	answer(w, http.StatusOK, &shown)
}

// Usage says what the node and its pods use. Of CPU it tells what was used
// since somebody last asked, so that of two calls the second tells more.
func (c *Client) Usage(ctx context.Context) (*Usage, error) {
	var u Usage
	if err := c.get(ctx, PathUsage, &u); err != nil {
		return nil, err
	}
	return &u, nil
}
