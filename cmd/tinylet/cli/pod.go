package cli

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/tinylet/tinylet/agent/pod"
	"github.com/tinylet/tinylet/agent/server/local"
)

// PodsDocument is the output of ps -o json.
type PodsDocument struct {
	Pods []PodDocument `json:"pods"`
}

// PodDocument is the summary of a pod.
type PodDocument struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	UID       string `json:"uid"`
	// Phase is the phase of the API. Status is the status column of kubectl get
	// pods.
	Phase  string `json:"phase"`
	Status string `json:"status"`
	// Ready and Total count the containers that run for the lifetime of the pod.
	Ready       int        `json:"ready"`
	Total       int        `json:"total"`
	Restarts    int        `json:"restarts"`
	LastRestart *time.Time `json:"lastRestart,omitempty"`
	// StartTime is that of the pod's status, or else the creation time.
	StartTime *time.Time `json:"startTime,omitempty"`
	PodIP     string     `json:"podIP,omitempty"`
	// MemoryBytes is the working set; 0 is unknown.
	MemoryBytes uint64              `json:"memoryBytes"`
	Containers  []ContainerDocument `json:"containers"`
}

// ContainerDocument is the summary of a container.
type ContainerDocument struct {
	Name string `json:"name"`
	// Type is container, init, sidecar or ephemeral.
	Type string `json:"type"`
	// State is Waiting, Running or Terminated. Reason is the reason of Waiting or
	// Terminated, and Running for a running container.
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

// States of the pod worker.
const (
	workerTerminating = "terminating"
	workerTerminated  = "terminated"
)

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
		Restarts: s.Restarts, LastRestart: timePointer(s.LastRestart), StartTime: timePointer(ptr.Deref(p.Pod.Status.StartTime, p.Pod.CreationTimestamp).Time),
		PodIP: p.Pod.Status.PodIP, MemoryBytes: p.MemoryBytes, Containers: containerDocuments(p),
	}
}

// containerDocuments returns the containers in their start order.
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
			d.setStatus(status)
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

func (d *ContainerDocument) setStatus(c *v1.ContainerStatus) {
	d.Ready, d.Restarts, d.LastRestart = c.Ready, int(c.RestartCount), timePointer(pod.LastFinishedAt(c))
	if c.Image != "" {
		d.Image = c.Image
	}
	if _, id, ok := strings.Cut(c.ContainerID, "://"); ok {
		d.ID = id
	}
	switch {
	case c.State.Running != nil:
		d.State, d.Reason = stateRunning, stateRunning
		d.StartedAt = timePointer(c.State.Running.StartedAt.Time)
	case c.State.Terminated != nil:
		t := c.State.Terminated
		d.State, d.Reason, d.Message, d.ExitCode = stateTerminated, pod.TerminationReason(t), t.Message, &t.ExitCode
		d.StartedAt, d.FinishedAt = timePointer(t.StartedAt.Time), timePointer(t.FinishedAt.Time)
	case c.State.Waiting != nil:
		d.Reason, d.Message = cmp.Or(c.State.Waiting.Reason, stateWaiting), c.State.Waiting.Message
	}
}

// choosePod requests the pods and returns the one that arg selects, see pick. Of two
// pods with the same name, it returns the one that is not terminating or terminated.
func choosePod(ctx context.Context, client *local.Client, arg string) (*local.Pod, error) {
	pods, err := client.Pods(ctx, arg)
	if err != nil {
		return nil, err
	}
	slices.SortStableFunc(pods, func(a, b local.Pod) int { return terminating(a) - terminating(b) })
	var names []pod.Ref
	for i := range pods {
		names = append(names, pod.Ref{Namespace: pods[i].Pod.Namespace, Name: pods[i].Pod.Name})
	}
	i, err := pick(names, arg)
	if err != nil {
		return nil, err
	}
	return &pods[i], nil
}

// terminating returns 1 for a pod that is terminating or terminated, else 0.
func terminating(p local.Pod) int {
	if p.WorkerState == workerTerminating || p.WorkerState == workerTerminated {
		return 1
	}
	return 0
}

// pick returns the index of the pod in names that arg selects: by its exact name
// or namespace/name, or else by a prefix of either that only one pod has. If
// several entries have the selected name, it returns the first. The names have no UIDs.
func pick(names []pod.Ref, arg string) (int, error) {
	found := distinct(names, func(n pod.Ref) bool { return n.Name == arg || n.String() == arg })
	if len(found) == 0 && arg != "" {
		found = distinct(names, func(n pod.Ref) bool {
			return strings.HasPrefix(n.Name, arg) || strings.HasPrefix(n.String(), arg)
		})
	}
	switch len(found) {
	case 0:
		return 0, &ExitError{Code: codeNotFound, Err: fmt.Errorf("no pod has the name or name prefix %q; tinylet ps lists the pods", arg)}
	case 1:
		return found[0], nil
	}
	var list []string
	for _, i := range found {
		list = append(list, names[i].String())
	}
	slices.Sort(list)
	return 0, &ExitError{Code: codeNotFound, Err: fmt.Errorf("%q matches several pods: %s; write more of the name", arg, strings.Join(list, ", "))}
}

// distinct returns the first index of each name that matches.
func distinct(names []pod.Ref, matches func(pod.Ref) bool) []int {
	var out []int
	seen := map[pod.Ref]bool{}
	for i, n := range names {
		if matches(n) && !seen[n] {
			seen[n] = true
			out = append(out, i)
		}
	}
	return out
}

// annotationDefaultContainer names the container that kubectl selects if none is
// requested.
const annotationDefaultContainer = "kubectl.kubernetes.io/default-container"

// containerOf returns the container of p that chooseContainer selects, and all
// containers of p.
func containerOf(notes io.Writer, p *local.Pod, requested string) (*ContainerDocument, []ContainerDocument, error) {
	all := containerDocuments(p)
	names := make([]string, len(all))
	for i := range all {
		names[i] = all[i].Name
	}
	first := ""
	if len(p.Pod.Spec.Containers) > 0 {
		first = p.Pod.Spec.Containers[0].Name
	}
	name, err := chooseContainer(notes, p.Pod.Name, names, requested, p.Pod.Annotations[annotationDefaultContainer], first)
	if err != nil {
		return nil, nil, err
	}
	return &all[slices.Index(names, name)], all, nil
}

// chooseContainer returns the requested container, or the only one, or preferred
// if it exists, or else fallback. It writes a note to notes if it chose one of
// several.
func chooseContainer(notes io.Writer, pod string, names []string, requested, preferred, fallback string) (string, error) {
	if requested != "" {
		if !slices.Contains(names, requested) {
			return "", &ExitError{Code: codeNotFound, Err: fmt.Errorf("pod %q has no container %q; its containers are %s", pod, requested, strings.Join(names, ", "))}
		}
		return requested, nil
	}
	name := fallback
	if slices.Contains(names, preferred) {
		name = preferred
	}
	if !slices.Contains(names, name) {
		return "", &ExitError{Code: codeNotFound, Err: fmt.Errorf("pod %q has no containers", pod)}
	}
	if len(names) > 1 {
		fmt.Fprintf(notes, "defaulted container %q out of: %s; select another one with -c\n", name, strings.Join(names, ", "))
	}
	return name, nil
}
