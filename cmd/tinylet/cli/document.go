package cli

import (
	"cmp"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/tinylet/tinylet/agent/pod"
	"github.com/tinylet/tinylet/agent/server/local"
)

// PodsDocument is what ps -o json prints.
type PodsDocument struct {
	Pods []PodDocument `json:"pods"`
}

// PodDocument is one pod in short.
type PodDocument struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	UID       string `json:"uid"`
	// Phase is the API's; Status is the word that tells most, as kubectl
	// prints it.
	Phase  string `json:"phase"`
	Status string `json:"status"`
	// Ready and Total count the containers that are to run as long as the
	// pod does.
	Ready       int        `json:"ready"`
	Total       int        `json:"total"`
	Restarts    int        `json:"restarts"`
	LastRestart *time.Time `json:"lastRestart,omitempty"`
	StartTime   *time.Time `json:"startTime,omitempty"`
	PodIP       string     `json:"podIP,omitempty"`
	// MemoryBytes is the working set; 0 is not known.
	MemoryBytes uint64              `json:"memoryBytes"`
	Containers  []ContainerDocument `json:"containers"`
}

// ContainerDocument is one container in short.
type ContainerDocument struct {
	Name string `json:"name"`
	// Type is container, init, sidecar or ephemeral.
	Type string `json:"type"`
	// State is Waiting, Running or Terminated; Reason says why it waits or
	// how it ended, and is Running for one that runs.
	State       string     `json:"state"`
	Reason      string     `json:"reason"`
	Message     string     `json:"message,omitempty"`
	ExitCode    *int32     `json:"exitCode,omitempty"`
	Ready       bool       `json:"ready"`
	Restarts    int        `json:"restarts"`
	LastRestart *time.Time `json:"lastRestart,omitempty"`
	StartedAt   *time.Time `json:"startedAt,omitempty"`
	FinishedAt  *time.Time `json:"finishedAt,omitempty"`
	Image       string     `json:"image"`
	ID          string     `json:"id,omitempty"`
	LogPath     string     `json:"logPath,omitempty"`
	MemoryBytes uint64     `json:"memoryBytes"`
}

// Types of containers.
const (
	typeContainer = "container"
	typeInit      = "init"
	typeSidecar   = "sidecar"
	typeEphemeral = "ephemeral"
)

// workerTerminating is the pod worker's state of that name.
const workerTerminating = "terminating"

// Container states.
const (
	stateWaiting    = "Waiting"
	stateRunning    = "Running"
	stateTerminated = "Terminated"
)

func podDocument(p *local.Pod) PodDocument {
	s := pod.Summarize(p.Pod, p.WorkerState == workerTerminating)
	return PodDocument{
		Namespace: p.Pod.Namespace, Name: p.Pod.Name, UID: string(p.Pod.UID),
		Phase: string(p.Pod.Status.Phase), Status: s.Status, Ready: s.Ready, Total: s.Total,
		Restarts: s.Restarts, LastRestart: known(s.LastRestart), StartTime: known(startOf(p.Pod)),
		PodIP: p.Pod.Status.PodIP, MemoryBytes: p.MemoryBytes, Containers: containerDocuments(p),
	}
}

func startOf(p *v1.Pod) time.Time {
	if p.Status.StartTime != nil {
		return p.Status.StartTime.Time
	}
	return p.CreationTimestamp.Time
}

// containerDocuments are the containers in the order in which they start.
func containerDocuments(p *local.Pod) []ContainerDocument {
	out := []ContainerDocument{}
	for c, kind := range pod.Containers(&p.Pod.Spec) {
		d := ContainerDocument{Name: c.Name, Type: typeOf(c, kind), State: stateWaiting, Reason: stateWaiting, Image: c.Image}
		for i := range p.Containers {
			if found := &p.Containers[i]; found.Name == c.Name {
				d.ID, d.LogPath, d.MemoryBytes = found.ID, found.LogPath, found.MemoryBytes
			}
		}
		if status := pod.FindContainerStatus(&p.Pod.Status, c.Name); status != nil {
			d.fill(status)
		}
		out = append(out, d)
	}
	return out
}

func typeOf(c *v1.Container, kind pod.ContainerType) string {
	switch {
	case kind == pod.Ephemeral:
		return typeEphemeral
	case kind == pod.Main:
		return typeContainer
	case pod.IsRestartableInit(c):
		return typeSidecar
	}
	return typeInit
}

func (d *ContainerDocument) fill(c *v1.ContainerStatus) {
	d.Ready, d.Restarts, d.LastRestart = c.Ready, int(c.RestartCount), known(pod.LastFinishedAt(c))
	if c.Image != "" {
		d.Image = c.Image
	}
	if _, id, ok := strings.Cut(c.ContainerID, "://"); ok {
		d.ID = id
	}
	switch {
	case c.State.Running != nil:
		d.State, d.Reason = stateRunning, stateRunning
		d.StartedAt = known(c.State.Running.StartedAt.Time)
	case c.State.Terminated != nil:
		t := c.State.Terminated
		d.State, d.Reason, d.Message, d.ExitCode = stateTerminated, pod.TerminationReason(t), t.Message, &t.ExitCode
		d.StartedAt, d.FinishedAt = known(t.StartedAt.Time), known(t.FinishedAt.Time)
	case c.State.Waiting != nil:
		d.Reason, d.Message = cmp.Or(c.State.Waiting.Reason, stateWaiting), c.State.Waiting.Message
	}
}

func known(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	t = t.UTC()
	return &t
}

// sortPods orders by namespace and name.
func sortPods(pods []local.Pod) {
	slices.SortStableFunc(pods, func(a, b local.Pod) int {
		return cmp.Or(cmp.Compare(a.Pod.Namespace, b.Pod.Namespace), cmp.Compare(a.Pod.Name, b.Pod.Name))
	})
}
