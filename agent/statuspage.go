package agent

import (
	"cmp"
	"context"
	"log/slog"
	"net/http"
	"net/netip"
	goruntime "runtime"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/tinylet/tinylet/agent/config"
	"github.com/tinylet/tinylet/agent/config/version"
	"github.com/tinylet/tinylet/agent/node/nodestatus"
	"github.com/tinylet/tinylet/agent/pod"
	"github.com/tinylet/tinylet/agent/pod/event"
	"github.com/tinylet/tinylet/agent/podworker"
	"github.com/tinylet/tinylet/agent/server/local"
	"github.com/tinylet/tinylet/agent/server/statuspage"
)

// assemblePage makes the status page, or nil where there is to be none.
func (p *parts) assemblePage(cfg *config.Config, view *view, checks []local.Check, log *slog.Logger) (http.Handler, error) {
	address := healthzAddress(cfg)
	if !*cfg.Tinylet.StatusPage || address == "" {
		return nil, nil
	}
	pc := statuspage.Config{Notify: p.notify, Log: log}
	if file := cfg.Tinylet.StatusPageTokenFile; file != "" {
		pc.Token = statuspage.TokenFile(file)
	} else if at, _ := netip.ParseAddr(cfg.Kubelet.HealthzBindAddress); !at.IsLoopback() { // nor is what is no address
		log.Warn("the status page is closed: others than this host could see it",
			"address", address, "remedy", "give it a token with statusPageTokenFile, or set healthzBindAddress to 127.0.0.1")
		return nil, nil
	}
	source := &pageSource{
		name: cfg.NodeName, started: time.Now(), memory: uint64(max(view.node.memory, 0)), checks: checks,
		view: view, usage: p.usage, events: p.events.Recent, short: p.shortages,
	}
	if p.cluster != nil {
		source.server = p.tellCluster
	}
	pc.State = source.state
	return statuspage.New(pc)
}

// notify fills slot when a pod's status is another one, and when something
// happened.
func (p *parts) notify(slot chan<- struct{}) (cancel func()) {
	statuses, events := p.statuses.Notify(slot), p.events.Subscribe(slot)
	return func() { statuses(); events() }
}

// conditions are the Node's as they would be reported now.
func (c *cluster) conditions(ctx context.Context) []v1.NodeCondition {
	var had *v1.NodeStatus
	if n := c.registrar.Node(); n != nil {
		had = &n.Status
	}
	status, _ := nodestatus.Status(had, c.inputs.get(ctx)) // the error is told when it is reported
	return status.Conditions
}

// pageEvents is how many of the last events the page shows.
const pageEvents = 30

// pageSource is what the status page is made of.
type pageSource struct {
	name    string
	started time.Time
	memory  uint64 // of the machine, in bytes
	checks  []local.Check
	view    *view
	events  func() []event.Event

	usage  func(context.Context) (*local.Usage, error) // nil where nobody measures
	server func() *local.Cluster                       // nil on a board alone
	short  func() []local.Condition                    // those of a board alone
}

func (s *pageSource) state(ctx context.Context) (*statuspage.State, error) {
	now := time.Now()
	out := &statuspage.State{
		Time: now,
		Node: statuspage.Node{
			Name: s.name, Version: version.Kubelet(), Platform: goruntime.GOOS + "/" + goruntime.GOARCH, Started: s.started,
			Cores: goruntime.NumCPU(), MemoryCapacityBytes: s.memory,
		},
		Events: recentEvents(s.events()),
	}
	for _, check := range s.checks {
		shown := statuspage.Check{Name: check.Name}
		if err := check.Healthy(now); err != nil {
			shown.Problem = err.Error()
		}
		out.Checks = append(out.Checks, shown)
	}
	if s.server != nil {
		told := s.server()
		out.Server, out.Conditions = shownServer(told), shownConditions(told.Conditions)
	} else if s.short != nil {
		out.Conditions = shownConditions(s.short())
	}
	used, err := s.measure(ctx)
	switch {
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case err != nil:
		// All else is shown the more: why there are no figures may be in it.
		out.Checks = append(out.Checks, statuspage.Check{Name: "figures", Problem: err.Error()})
	case used != nil:
		shownUsage(out, used)
	}
	out.Pods = shownPods(s.view.list(), used)
	return out, nil
}

// measure answers nil where nobody measures.
func (s *pageSource) measure(ctx context.Context) (*local.Usage, error) {
	if s.usage == nil {
		return nil, nil
	}
	return s.usage(ctx)
}

// recentEvents are the last ones, the newest first.
func recentEvents(all []event.Event) []statuspage.Event {
	all = all[max(0, len(all)-pageEvents):]
	out := make([]statuspage.Event, 0, len(all))
	for _, e := range slices.Backward(all) {
		shown := statuspage.Event{Warning: e.Type == v1.EventTypeWarning, Reason: e.Reason, Message: e.Message, Count: e.Count, Last: e.Last}
		if e.Pod != (pod.Ref{}) {
			shown.Pod = e.Pod.String()
		}
		out = append(out, shown)
	}
	return out
}

func shownServer(c *local.Cluster) *statuspage.APIServer {
	out := &statuspage.APIServer{
		Registered: c.Registered, Failure: c.Failure, Problem: c.Problem, Metered: c.Metered, Sent: c.Sent, Received: c.Received,
		SentToday: c.SentToday, ReceivedToday: c.ReceivedToday,
	}
	if c.LastResponse != nil {
		out.LastResponse = *c.LastResponse
	}
	if c.Expires != nil {
		out.Expires = c.Expires.UTC()
	}
	return out
}

func shownConditions(all []local.Condition) []statuspage.Condition {
	out := make([]statuspage.Condition, 0, len(all))
	for _, c := range all {
		out = append(out, statuspage.Condition{
			Type: c.Type, Status: c.Status, Good: c.Healthy(), Reason: c.Reason, Message: c.Message, Since: c.Since,
		})
	}
	return out
}

// shownUsage fills in what the node uses.
func shownUsage(out *statuspage.State, u *local.Usage) {
	n := &out.Node
	n.CPUNanoCores, n.MemoryBytes, n.MemoryAvailableBytes = u.Node.CPUNanoCores, u.Node.MemoryBytes, u.Node.MemoryAvailableBytes
	n.Cores = cmp.Or(u.Node.Cores, n.Cores)
	n.MemoryCapacityBytes = cmp.Or(u.Node.MemoryCapacityBytes, n.MemoryCapacityBytes)
	if p := u.Node.Pressure; p != nil {
		n.Pressure = &statuspage.Pressure{CPU: p.CPU, Memory: p.Memory, IO: p.IO}
	}
	group := func(g *local.CgroupUsage) *statuspage.CgroupUsage {
		if g == nil {
			return nil
		}
		return &statuspage.CgroupUsage{Name: g.Name, CPUNanoCores: g.CPUNanoCores, MemoryBytes: g.MemoryBytes}
	}
	n.Agent, n.Runtime = group(u.Agent), group(u.Runtime)
	for i := range u.Classes {
		out.Classes = append(out.Classes, *group(&u.Classes[i]))
	}
}

// shownPods are the pods with what they use, as far as that is known.
func shownPods(pods []local.Pod, used *local.Usage) []statuspage.Pod {
	measured := make(map[string]*local.PodUsage)
	if used != nil {
		for i := range used.Pods {
			measured[used.Pods[i].UID] = &used.Pods[i]
		}
	}
	out := make([]statuspage.Pod, 0, len(pods))
	for i := range pods {
		p := &pods[i]
		s := pod.Summarize(p.Pod, p.WorkerState == podworker.Terminating.String())
		shown := statuspage.Pod{
			UID: string(p.Pod.UID), Namespace: p.Pod.Namespace, Name: p.Pod.Name, Status: s.Status, Severity: podMood(p.Pod, &s),
			Ready: s.Ready, Total: s.Total, Restarts: s.Restarts, LastRestart: s.LastRestart, Started: p.Pod.CreationTimestamp.Time,
			QOSClass: string(cmp.Or(p.Pod.Status.QOSClass, pod.QOSClass(p.Pod))), IP: p.Pod.Status.PodIP,
		}
		if start := p.Pod.Status.StartTime; start != nil {
			shown.Started = start.Time
		}
		shown.Containers = shownContainers(p.Pod)
		if m := measured[shown.UID]; m != nil {
			shown.CPUNanoCores, shown.MemoryBytes = m.CPUNanoCores, m.MemoryBytes
			fillContainers(shown.Containers, m.Containers)
		}
		out = append(out, shown)
	}
	return out
}

func shownContainers(p *v1.Pod) []statuspage.Container {
	out := []statuspage.Container{}
	for c := range pod.Containers(&p.Spec) {
		shown := statuspage.Container{Name: c.Name, State: "Waiting", Severity: statuspage.Busy}
		if status := pod.FindContainerStatus(&p.Status, c.Name); status != nil {
			shown.Restarts = int(status.RestartCount)
			containerState(&shown, status)
		}
		out = append(out, shown)
	}
	return out
}

func containerState(shown *statuspage.Container, status *v1.ContainerStatus) {
	switch state := &status.State; {
	case state.Running != nil:
		shown.State, shown.Severity = "Running", statuspage.Good
	case state.Terminated != nil:
		shown.State, shown.Message, shown.Severity = pod.TerminationReason(state.Terminated), state.Terminated.Message, statuspage.Over
		if state.Terminated.ExitCode != 0 {
			shown.Severity = statuspage.Bad
		}
	case state.Waiting != nil:
		shown.State, shown.Message = cmp.Or(state.Waiting.Reason, shown.State), state.Waiting.Message
		shown.Severity = wordMood(shown.State)
	}
}

func fillContainers(shown []statuspage.Container, measured []local.ContainerUsage) {
	for i := range shown {
		for j := range measured {
			if m := &measured[j]; m.Name == shown[i].Name {
				shown[i].CPUNanoCores, shown[i].MemoryBytes = m.CPUNanoCores, m.MemoryBytes
			}
		}
	}
}

// podMood says whether somebody should look at a pod.
func podMood(p *v1.Pod, s *pod.Summary) statuspage.Severity {
	switch {
	case p.Status.Phase == v1.PodFailed:
		return statuspage.Bad
	case p.Status.Phase == v1.PodSucceeded:
		return statuspage.Over
	case s.Status == string(v1.PodRunning) && s.Ready == s.Total:
		return statuspage.Good
	}
	return wordMood(s.Status)
}

// wordMood goes by a status' word. Those of trouble come from the kubelet and
// from runtimes, and have no list.
func wordMood(word string) statuspage.Severity {
	for _, part := range []string{"Err", "BackOff", "Invalid", "OOMKilled", "CannotRun", "ExitCode:", "Signal:", "Unknown"} {
		if strings.Contains(word, part) {
			return statuspage.Bad
		}
	}
	return statuspage.Busy
}
