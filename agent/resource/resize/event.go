package resize

import (
	"encoding/json"
	"fmt"

	v1 "k8s.io/api/core/v1"
)

// Reasons of events (pkg/kubelet/events/event.go). ReasonDeferred and
// ReasonInfeasible, for pending resizes, and ReasonError are warnings.
const (
	ReasonDeferred   = "ResizeDeferred"
	ReasonInfeasible = "ResizeInfeasible"
	ReasonStarted    = "ResizeStarted"
	ReasonCompleted  = "ResizeCompleted"
	ReasonError      = "ResizeError"
)

// Prefixes of event messages. For a pending resize it is PrefixPending followed by
// the decision's reason.
const (
	PrefixPending   = "Pod resize "
	PrefixStarted   = "Pod resize started"
	PrefixCompleted = "Pod resize completed"
	PrefixError     = "Pod resize error"
)

type summary struct {
	InitContainers []sized `json:"initContainers,omitempty"`
	Containers     []sized `json:"containers,omitempty"`
	Generation     int64   `json:"generation"`
	Error          string  `json:"error,omitempty"`
}

type sized struct {
	Name      string                  `json:"name"`
	Resources v1.ResourceRequirements `json:"resources"`
}

// EventMessage returns the message of an event: prefix, and the containers' resources
// in the pod's spec as JSON (pkg/kubelet/events/resize.go). problem is "" if there is
// no error.
func EventMessage(prefix string, p *v1.Pod, generation int64, problem string) string {
	s := summary{Generation: generation, Error: problem}
	for i := range p.Spec.InitContainers {
		s.InitContainers = append(s.InitContainers, sized{p.Spec.InitContainers[i].Name, p.Spec.InitContainers[i].Resources})
	}
	for i := range p.Spec.Containers {
		s.Containers = append(s.Containers, sized{p.Spec.Containers[i].Name, p.Spec.Containers[i].Resources})
	}
	text, err := json.Marshal(s)
	if err != nil {
		return prefix
	}
	return fmt.Sprintf("%s: %s", prefix, text)
}
