package resize

import (
	"encoding/json"
	"fmt"

	v1 "k8s.io/api/core/v1"
)

// Reasons of events (pkg/kubelet/events/event.go). Of a pending resize,
// ReasonDeferred and ReasonInfeasible are warnings, as is ReasonError.
const (
	ReasonDeferred   = "ResizeDeferred"
	ReasonInfeasible = "ResizeInfeasible"
	ReasonStarted    = "ResizeStarted"
	ReasonCompleted  = "ResizeCompleted"
	ReasonError      = "ResizeError"
)

// What the messages of events begin with; of a pending resize it is
// PrefixPending and the decision's reason.
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

// EventMessage is an event's message: a beginning, and what the pod's
// containers have in the spec given, as JSON (pkg/kubelet/events/resize.go).
// The problem is empty where there is none.
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
