package agent

import (
	"context"
	"net/http"
	"net/netip"
	goruntime "runtime"
	"time"

	"github.com/tinylet/tinylet/agent/health"
	"github.com/tinylet/tinylet/agent/health/sdnotify"
	"github.com/tinylet/tinylet/agent/node/nodestatus"
	"github.com/tinylet/tinylet/agent/podworker/syncloop"
	"github.com/tinylet/tinylet/agent/server"
	"github.com/tinylet/tinylet/agent/server/authn"
	"github.com/tinylet/tinylet/agent/server/authz"
	"github.com/tinylet/tinylet/agent/server/local"
	"github.com/tinylet/tinylet/agent/server/profile"
	"github.com/tinylet/tinylet/agent/server/stats"
	"github.com/tinylet/tinylet/agent/server/statuspage"
	"github.com/tinylet/tinylet/agent/server/streaming"
	"github.com/tinylet/tinylet/board/provision"
)

// serverStage serves the state of all other stages: the local API on its unix socket, /healthz
// with the status page, and the kubelet API.
type serverStage struct {
	streams *streaming.Handler
	stats   *stats.Source                               // nil without cgroups
	usage   func(context.Context) (*local.Usage, error) // nil without cgroups
	nodeAPI *nodeAPI                                    // nil if standalone or without enableServer
	local   *local.Server
}

// nodeAPI is the kubelet API, by default on port 10250.
type nodeAPI struct {
	authn  *authn.Authenticator
	server *server.Server
}

// newServerStage requires all other stages of a.
func newServerStage(a *agent) (_ *serverStage, err error) {
	cfg := a.cfg
	s := new(serverStage)
	s.streams = streaming.New(streaming.Config{
		Runtime: a.runtime, Find: (&streaming.Finder{Statuses: a.statuses}).Find, IdleTimeout: cfg.Kubelet.StreamingConnectionIdleTimeout.Duration, Log: a.log,
	})
	if a.tree != nil {
		s.stats = stats.NewSource(stats.SourceConfig{
			NodeName: cfg.NodeName, RootDir: cfg.Paths.Root, Tree: a.tree, Node: a.node, Statuses: a.statuses, Workers: a.workers,
			Disks: a.disks, AfterRead: a.pressure.Trigger, Log: a.log,
		})
		s.usage = s.stats.Usage
	}
	if s.nodeAPI, err = newNodeAPI(a, s); err != nil {
		return nil, err
	}
	pods := &local.PodLister{Statuses: a.statuses, Workers: a.workers, Tree: a.tree, Node: a.node}
	c := local.Config{
		Conditions:     a.pressureConditions,
		Todo:           a.todo,
		SocketPath:     cfg.Tinylet.SocketPath,
		HealthzAddress: cfg.HealthzAddress(),
		Pods:           pods.Measured,
		Events:         a.events.Recent,
		Drain:          local.Drain{Begin: a.shutdown.Drain, Cancel: a.shutdown.Cancel, Remaining: func() int { return len(a.evictable.Unfinished()) }},
		Watch:          a.events.Watch,
		Usage:          s.usage,
		Checks:         a.checks(),
		RuntimeCalls:   a.runtimeCalls,
		Metrics:        a.writeMetrics,
		Streaming:      s.streams,
		Problem:        problems(cfg.PlainPodURL, cfg.ExposedCredentials),
		Log:            a.log,
	}
	if a.cluster != nil {
		c.Cluster = a.registration.state.State
	} else {
		c.Problem = problems(c.Problem, a.problem) // a node of a cluster has it in its status
	}
	c.Page = a.newPage(pods, s.usage, a.checks())
	s.local = local.New(c)
	if problem := cfg.ExposedCredentials(); problem != "" {
		a.log.Warn("credentials are readable by other users", "remedy", problem)
	}
	return s, nil
}

// newNodeAPI returns nil on a standalone node, where no API server authenticates the clients,
// and if enableServer is false.
func newNodeAPI(a *agent, s *serverStage) (*nodeAPI, error) {
	cfg, k := a.cfg, &a.cfg.Kubelet
	if a.cluster == nil || !*k.EnableServer {
		return nil, nil
	}
	reviews := authz.Reviews{Client: a.cluster.identity.Current}
	ac := authn.Config{
		ClientCAFile: k.Authentication.X509.ClientCAFile, CacheTTL: k.Authentication.Webhook.CacheTTL.Duration,
		Anonymous: *k.Authentication.Anonymous.Enabled, Log: a.log,
	}
	if *k.Authentication.Webhook.Enabled {
		ac.Review = reviews.Token
	}
	authenticator, err := authn.New(ac)
	if err != nil {
		return nil, err
	}
	authorizer := authz.New(authz.Config{
		Mode: k.Authorization.Mode, NodeName: cfg.NodeName, Review: reviews.Access,
		AllowedTTL: k.Authorization.Webhook.CacheAuthorizedTTL.Duration,
		DeniedTTL:  k.Authorization.Webhook.CacheUnauthorizedTTL.Duration,
		Log:        a.log,
	})
	c := server.Config{
		Kubelet: k, GetCertificate: a.cluster.identity.Serving(), Authn: authenticator, Authz: authorizer,
		Pods: a.statuses.All, Started: a.statuses.RunningContainer, AwaitObserved: a.statuses.AwaitObserved, Runtime: a.runtime, Streaming: s.streams, Profiling: profile.Handler(),
		ContainerLog: (&server.ContainerLogs{Runtime: a.runtime, Statuses: a.statuses, Node: a.node.Peek}).Find,
		Checks:       a.checks(), Metrics: a.writeMetrics, ProbeMetrics: a.writeProbes,
		Log: a.log,
	}
	if k.EnableContentionProfiling && *k.EnableDebuggingHandlers && *k.EnableProfilingHandler {
		goruntime.SetBlockProfileRate(1) // every blocking event
	}
	if s.stats != nil {
		c.Summary, c.ResourceMetrics, c.CadvisorMetrics = s.stats.WriteSummary, s.stats.WriteResource, s.stats.WriteCadvisor
	}
	return &nodeAPI{authn: authenticator, server: server.New(c)}, nil
}

// newPage returns the status page, or nil if it is disabled: also without healthz server, and
// without token on an address other than loopback.
func (a *agent) newPage(pods *local.PodLister, usage func(context.Context) (*local.Usage, error), checks []local.Check) http.Handler {
	cfg := a.cfg
	address := cfg.HealthzAddress()
	if !*cfg.Tinylet.StatusPage || address == "" {
		return nil
	}
	pc := statuspage.Config{Notify: a.notify, Log: a.log}
	if file := cfg.Tinylet.StatusPageTokenFile; file != "" {
		pc.Token = statuspage.TokenFile(file)
	} else if at, _ := netip.ParseAddr(cfg.Kubelet.HealthzBindAddress); !at.IsLoopback() { // also if it is no address
		a.log.Warn("status page is disabled: address is not loopback", "address", address, "remedy", "give it a token with statusPageTokenFile, or set healthzBindAddress to 127.0.0.1")
		return nil
	}
	source := &statuspage.Source{
		NodeName: cfg.NodeName, Started: time.Now(), MemoryCapacity: uint64(max(a.node.MemoryCapacity(), 0)), Checks: checks,
		Pods: pods.List, Usage: usage, Events: a.events.Recent, Conditions: a.pressureConditions,
	}
	if a.cluster != nil {
		source.Cluster = a.registration.state.State
	}
	pc.State = source.State
	return statuspage.New(pc)
}

// notify sends to slot when a pod's status changes, and at each event.
func (a *agent) notify(slot chan<- struct{}) (cancel func()) {
	statuses, events := a.statuses.Notify(slot), a.events.Subscribe(slot)
	return func() { statuses(); events() }
}

// pressureConditions returns the pressure conditions, which are all conditions of a standalone
// node.
func (a *agent) pressureConditions() []local.Condition {
	return local.Conditions(nodestatus.PressureConditions(a.pressure.Conditions()))
}

func (a *agent) checks() []local.Check {
	return []local.Check{
		{Name: "syncloop", Healthy: func(time.Time) error { return alive(a.loop) }},
		{Name: local.RuntimeCheck, Healthy: a.pleg.Healthy},
		{Name: "tasks", Healthy: a.supervisor.Healthy},
	}
}

// syncLoopTimeout bounds one iteration of the sync loop. It only dispatches, so even a slow
// board needs milliseconds.
const syncLoopTimeout = 2 * time.Second

func alive(loop *syncloop.Loop) error {
	ctx, cancel := context.WithTimeout(context.Background(), syncLoopTimeout)
	defer cancel()
	return loop.Alive(ctx)
}

// todo returns what the operator must do at the node.
func (a *agent) todo() []string {
	return append(a.foreignVolumeRemedies(), provision.Problems("/")...)
}

// foreignVolumeRemedies returns what the operator must do about volumes of terminated pods that a
// kubelet set up with plugins that this agent does not have.
func (a *agent) foreignVolumeRemedies() []string {
	remedies, err := a.volumes.ForeignRemedies(a.workers.IsTerminated)
	if err != nil {
		a.log.Warn("cannot list foreign volumes", "error", err)
	}
	return remedies
}

// newNotifier returns nil if NOTIFY_SOCKET is unset.
func (a *agent) newNotifier() *sdnotify.Notifier {
	if !sdnotify.Enabled() {
		return nil
	}
	return sdnotify.New(sdnotify.Config{
		Ready: a.ready, Status: a.statuses.Summary, Notify: a.statuses.Notify, Stopping: a.stopping, Checks: a.watchdogChecks(), Log: a.log,
	})
}

// ready returns nil once the sync loop runs and has the pods of the journal. The container
// runtime and the API server may be unavailable.
func (a *agent) ready(ctx context.Context) error {
	if a.reporting != nil {
		select {
		case <-a.reporting.source.Restored:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return a.loop.Alive(ctx)
}

// watchdogChecks returns the checks for faults that a restart of the agent cures.
func (a *agent) watchdogChecks() []health.Check {
	checks := []health.Check{
		{Name: "sync loop", Run: a.loop.Alive}, {Name: "pod workers", Run: a.workers.Unlocked},
		{Name: "pod syncs", Run: a.syncer.Unlocked}, {Name: "pod statuses", Run: a.statuses.Unlocked},
	}
	if a.cluster != nil && a.cluster.journal != nil {
		checks = append(checks, health.Check{Name: "journal", Run: a.cluster.journal.Unlocked})
	}
	return checks
}
