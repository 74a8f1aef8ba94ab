package statuspage

import (
	"cmp"
	"context"
	goruntime "runtime"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/tinylet/tinylet/agent/config/version"
	"github.com/tinylet/tinylet/agent/pod"
	"github.com/tinylet/tinylet/agent/pod/event"
	"github.com/tinylet/tinylet/agent/podworker"
	"github.com/tinylet/tinylet/agent/server/local"
)

// maxEvents is the number of recent events that the page shows.
const maxEvents = 30

// Source collects the State of the page.
type Source struct {
	NodeName string
	Started  time.Time // start of the agent
	// MemoryCapacity is the machine's memory in bytes.
	MemoryCapacity uint64
	Checks         []local.Check
	Pods           func() []local.Pod
	Events         func() []event.Event
	// Usage measures the node and its pods; nil omits the usage.
	Usage func(context.Context) (*local.Usage, error)
	// Cluster returns the connection to the API server; nil on a standalone node.
	Cluster func() *local.Cluster
	// Conditions returns the conditions of a standalone node.
	Conditions func() []local.Condition
}

// State collects the current state. It fails only if ctx ends.
func (s *Source) State(ctx context.Context) (*State, error) {
	now := time.Now()
	out := &State{
		Time: now,
		Node: Node{
			NodeUsage: local.NodeUsage{Name: s.NodeName, Cores: goruntime.NumCPU(), MemoryCapacityBytes: s.MemoryCapacity},
			Version:   version.Kubelet(), Platform: goruntime.GOOS + "/" + goruntime.GOARCH, Started: s.Started,
		},
		Events: recentEvents(s.Events()),
	}
	for _, check := range s.Checks {
		shown := Check{Name: check.Name}
		if err := check.Healthy(now); err != nil {
			shown.Problem = err.Error()
		}
		out.Checks = append(out.Checks, shown)
	}
	if s.Cluster != nil {
		cluster := *s.Cluster()
		out.Conditions = withHealth(cluster.Conditions)
		cluster.Conditions, cluster.Journal = nil, nil
		out.Server = &cluster
	} else {
		out.Conditions = withHealth(s.Conditions())
	}
	var used *local.Usage
	if s.Usage != nil {
		var err error
		used, err = s.Usage(ctx)
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		if err != nil {
			// The rest of the page may show the cause.
			out.Checks = append(out.Checks, Check{Name: "figures", Problem: err.Error()})
		}
	}
	if used != nil {
		out.setUsage(used)
	}
	out.Pods = podsOf(s.Pods(), used)
	return out, nil
}

// recentEvents returns the last maxEvents events, the newest first.
func recentEvents(all []event.Event) []Event {
	all = all[max(0, len(all)-maxEvents):]
	out := make([]Event, 0, len(all))
	for _, e := range slices.Backward(all) {
		shown := Event{Warning: e.Type == v1.EventTypeWarning, Reason: e.Reason, Message: e.Message, Count: e.Count, Last: e.Last}
		if e.Pod != (pod.Ref{}) {
			shown.Pod = e.Pod.String()
		}
		out = append(out, shown)
	}
	return out
}

func withHealth(all []local.Condition) []Condition {
	out := make([]Condition, 0, len(all))
	for _, c := range all {
		out = append(out, Condition{Condition: c, Good: c.Healthy()})
	}
	return out
}

func (s *State) setUsage(u *local.Usage) {
	unmeasured := s.Node.NodeUsage
	s.Node.NodeUsage, s.Node.Agent, s.Classes = u.Node, u.Agent, u.Classes
	s.Node.Name = unmeasured.Name
	s.Node.Cores = cmp.Or(u.Node.Cores, unmeasured.Cores)
	s.Node.MemoryCapacityBytes = cmp.Or(u.Node.MemoryCapacityBytes, unmeasured.MemoryCapacityBytes)
}

// podsOf returns the pods with their usage, as far as it is known.
func podsOf(pods []local.Pod, used *local.Usage) []Pod {
	measured := make(map[string]*local.PodUsage)
	if used != nil {
		for i := range used.Pods {
			measured[used.Pods[i].UID] = &used.Pods[i]
		}
	}
	out := make([]Pod, 0, len(pods))
	for i := range pods {
		p := &pods[i]
		s := pod.Summarize(p.Pod, p.WorkerState == podworker.Terminating.String())
		shown := Pod{
			UID: string(p.Pod.UID), Namespace: p.Pod.Namespace, Name: p.Pod.Name, Status: s.Status, Severity: podSeverity(p.Pod, &s),
			Ready: s.Ready, Total: s.Total, Restarts: s.Restarts, LastRestart: s.LastRestart, Started: p.Pod.CreationTimestamp.Time,
			QOSClass: string(cmp.Or(p.Pod.Status.QOSClass, pod.QOSClass(p.Pod))), IP: p.Pod.Status.PodIP,
		}
		if start := p.Pod.Status.StartTime; start != nil {
			shown.Started = start.Time
		}
		m := cmp.Or(measured[shown.UID], &local.PodUsage{})
		shown.CPUNanoCores, shown.MemoryBytes = m.CPUNanoCores, m.MemoryBytes
		shown.Containers = containersOf(p.Pod, m.Containers)
		out = append(out, shown)
	}
	return out
}

func containersOf(p *v1.Pod, measured []local.ContainerUsage) []Container {
	out := []Container{}
	for c := range pod.Containers(&p.Spec) {
		shown := Container{ContainerUsage: local.ContainerUsage{Name: c.Name, State: "Waiting"}, Severity: Busy}
		if status := pod.FindContainerStatus(&p.Status, c.Name); status != nil {
			shown.Restarts = int(status.RestartCount)
			setState(&shown, status)
		}
		if i := slices.IndexFunc(measured, func(m local.ContainerUsage) bool { return m.Name == c.Name }); i >= 0 {
			shown.CPUNanoCores, shown.MemoryBytes = measured[i].CPUNanoCores, measured[i].MemoryBytes
		}
		out = append(out, shown)
	}
	return out
}

func setState(shown *Container, status *v1.ContainerStatus) {
	switch state := &status.State; {
	case state.Running != nil:
		shown.State, shown.Severity = "Running", Good
	case state.Terminated != nil:
		shown.State, shown.Message, shown.Severity = pod.TerminationReason(state.Terminated), state.Terminated.Message, Over
		if state.Terminated.ExitCode != 0 {
			shown.Severity = Bad
		}
	case state.Waiting != nil:
		shown.State, shown.Message = cmp.Or(state.Waiting.Reason, shown.State), state.Waiting.Message
		shown.Severity = reasonSeverity(shown.State)
	}
}

func podSeverity(p *v1.Pod, s *pod.Summary) Severity {
	switch {
	case p.Status.Phase == v1.PodFailed:
		return Bad
	case p.Status.Phase == v1.PodSucceeded:
		return Over
	case s.Status == string(v1.PodRunning) && s.Ready == s.Total:
		return Good
	}
	return reasonSeverity(s.Status)
}

// reasonSeverity derives the severity from parts of a reason, because there is no complete
// list of the reasons that the kubelet and runtimes use for failures.
func reasonSeverity(reason string) Severity {
	for _, part := range []string{"Err", "BackOff", "Invalid", "OOMKilled", "CannotRun", "ExitCode:", "Signal:", "Unknown"} {
		if strings.Contains(reason, part) {
			return Bad
		}
	}
	return Busy
}
