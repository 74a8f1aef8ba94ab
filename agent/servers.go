package agent

import (
	"context"
	goruntime "runtime"
	"time"

	"github.com/tinylet/tinylet/agent/health"
	"github.com/tinylet/tinylet/agent/node/nodestatus"
	"github.com/tinylet/tinylet/agent/podworker/syncloop"
	"github.com/tinylet/tinylet/agent/resource/diskusage"
	"github.com/tinylet/tinylet/agent/server"
	"github.com/tinylet/tinylet/agent/server/authn"
	"github.com/tinylet/tinylet/agent/server/authz"
	"github.com/tinylet/tinylet/agent/server/local"
	"github.com/tinylet/tinylet/agent/server/profile"
	"github.com/tinylet/tinylet/agent/server/stats"
	"github.com/tinylet/tinylet/agent/server/streaming"
)

// assembleServers builds the servers: the local API on its unix socket, /healthz with the
// status page, and the kubelet API. It comes last, because they serve the state of all other
// parts.
func (a *agent) assembleServers() (err error) {
	cfg := a.cfg
	a.streams, err = streaming.New(streaming.Config{
		Runtime: a.runtime, Find: (&streaming.Finder{Statuses: a.statuses}).Find, IdleTimeout: cfg.Kubelet.StreamingConnectionIdleTimeout.Duration, Log: a.log,
	})
	if err != nil {
		return err
	}
	a.disks, err = diskusage.New(diskusage.Config{
		Pods: func(ctx context.Context) ([]diskusage.Pod, error) { return a.syncer.DiskPods(ctx), nil },
		Node: cfg.Paths.Root, ImageFs: a.runtime.ImageFsInfo, Log: a.log,
	})
	if err != nil {
		return err
	}
	a.eviction.DiskUsage = a.disks
	if a.tree != nil {
		a.stats, err = stats.NewSource(stats.SourceConfig{
			NodeName: cfg.NodeName, RootDir: cfg.Paths.Root, Tree: a.tree, Node: a.node, Statuses: a.statuses, Workers: a.workers,
			Disks: a.disks, AfterRead: a.eviction.Trigger, Log: a.log,
		})
		if err != nil {
			return err
		}
		a.usage = a.stats.Usage
	}
	if err := a.assembleNodeAPI(); err != nil {
		return err
	}
	pods := &local.PodLister{Statuses: a.statuses, Workers: a.workers, Tree: a.tree, Node: a.node}
	page, err := a.assemblePage(pods, a.checks())
	if err != nil {
		return err
	}
	clusterState := (func() *local.Cluster)(nil)
	if a.cluster != nil {
		clusterState = a.cluster.state.State
	}
	a.local, err = local.New(local.Config{
		Cluster:        clusterState,
		Conditions:     a.pressureConditions,
		Todo:           func() []string { return a.foreignVolumeRemedies() },
		SocketPath:     cfg.Tinylet.SocketPath,
		HealthzAddress: cfg.HealthzAddress(),
		Pods:           pods.Measured,
		Events:         a.events.Recent,
		Drain:          local.Drain{Begin: a.shutDown, Cancel: a.shutdown.Cancel, Remaining: func() int { return len(a.unfinishedPods()) }},
		Watch:          a.events.Watch,
		Usage:          a.usage,
		Page:           page,
		Checks:         a.checks(),
		RuntimeCalls:   a.runtimeCalls,
		Metrics:        a.writeMetrics,
		Streaming:      a.streams,
		Log:            a.log,
	})
	if err != nil {
		return err
	}
	if problem := cfg.ExposedCredentials(); problem != "" {
		a.log.Warn("credentials are readable by other users", "remedy", problem)
	}
	a.local.SetProblem(problems(cfg.PlainPodURL, cfg.ExposedCredentials))
	return nil
}

// pressureConditions returns the conditions of a standalone node.
func (a *agent) pressureConditions() []local.Condition {
	return local.Conditions(nodestatus.PressureConditions(a.eviction.Conditions()))
}

// checks returns the agent's health checks.
func (a *agent) checks() []local.Check {
	return []local.Check{
		{Name: "syncloop", Healthy: func(time.Time) error { return alive(a.loop) }},
		{Name: "runtime", Healthy: a.pleg.Healthy},
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

// nodeAPI is the kubelet API on port 10250.
type nodeAPI struct {
	authn  *authn.Authenticator
	server *server.Server
}

func (n *nodeAPI) tasks() []health.Task {
	return []health.Task{
		{Name: "client-ca", Run: func(ctx context.Context) error { n.authn.Run(ctx); return nil }},
		{Name: "node-api", Run: n.server.Run},
	}
}

// assembleNodeAPI builds the kubelet API. A standalone node has none, because no API server
// authenticates its clients.
func (a *agent) assembleNodeAPI() error {
	cfg, k := a.cfg, &a.cfg.Kubelet
	if a.cluster == nil || !*k.EnableServer {
		return nil
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
		return err
	}
	authorizer, err := authz.New(authz.Config{
		Mode: k.Authorization.Mode, NodeName: cfg.NodeName, Review: reviews.Access,
		AllowedTTL: k.Authorization.Webhook.CacheAuthorizedTTL.Duration,
		DeniedTTL:  k.Authorization.Webhook.CacheUnauthorizedTTL.Duration,
		Log:        a.log,
	})
	if err != nil {
		return err
	}
	c := server.Config{
		Kubelet: k, GetCertificate: a.cluster.identity.Serving(), Authn: authenticator, Authz: authorizer,
		Pods: a.statuses.All, Started: a.statuses.RunningContainer, Runtime: a.runtime, Streaming: a.streams, Profiling: profile.Handler(),
		ContainerLog: (&server.ContainerLogs{Runtime: a.runtime, Statuses: a.statuses, Node: a.node.Peek}).Find,
		Checks:       a.checks(), Metrics: a.writeMetrics, ProbeMetrics: a.writeProbes,
		Log: a.log,
	}
	if k.EnableContentionProfiling && *k.EnableDebuggingHandlers && *k.EnableProfilingHandler {
		goruntime.SetBlockProfileRate(1) // every blocking event
	}
	if a.stats != nil {
		c.Summary, c.ResourceMetrics, c.CadvisorMetrics = a.stats.WriteSummary, a.stats.WriteResource, a.stats.WriteCadvisor
	}
	s, err := server.New(c)
	if err != nil {
		return err
	}
	a.nodeAPI = &nodeAPI{authn: authenticator, server: s}
	return nil
}

// foreignVolumeRemedies returns what the operator must do about volumes of terminated pods that a
// kubelet set up with plugins that this agent does not have.
func (a *agent) foreignVolumeRemedies() []string {
	remedies, err := a.volumes.ForeignRemedies(a.isTerminated)
	if err != nil {
		a.log.Warn("cannot list foreign volumes", "error", err)
	}
	return remedies
}
