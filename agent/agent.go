// Package agent is the composition root of the node agent: it claims the node, builds all
// components from one Config, and runs their tasks until the agent is stopped.
package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"

	"k8s.io/apimachinery/pkg/types"

	"github.com/tinylet/tinylet/agent/config"
	"github.com/tinylet/tinylet/agent/config/version"
	"github.com/tinylet/tinylet/agent/container"
	"github.com/tinylet/tinylet/agent/container/containerd"
	"github.com/tinylet/tinylet/agent/container/cri"
	"github.com/tinylet/tinylet/agent/container/criconfig"
	"github.com/tinylet/tinylet/agent/container/image"
	"github.com/tinylet/tinylet/agent/container/logrotate"
	"github.com/tinylet/tinylet/agent/container/pleg"
	"github.com/tinylet/tinylet/agent/container/preload"
	"github.com/tinylet/tinylet/agent/container/reaper"
	"github.com/tinylet/tinylet/agent/health"
	"github.com/tinylet/tinylet/agent/health/sdnotify"
	"github.com/tinylet/tinylet/agent/network"
	"github.com/tinylet/tinylet/agent/node/nodeinfo"
	"github.com/tinylet/tinylet/agent/node/shutdown"
	"github.com/tinylet/tinylet/agent/node/tunables"
	"github.com/tinylet/tinylet/agent/pod/event"
	"github.com/tinylet/tinylet/agent/podworker"
	"github.com/tinylet/tinylet/agent/podworker/podstatus"
	"github.com/tinylet/tinylet/agent/podworker/podsync"
	"github.com/tinylet/tinylet/agent/podworker/probe"
	"github.com/tinylet/tinylet/agent/podworker/syncloop"
	"github.com/tinylet/tinylet/agent/podworker/volume"
	"github.com/tinylet/tinylet/agent/resource/cpumanager"
	"github.com/tinylet/tinylet/agent/resource/diskusage"
	"github.com/tinylet/tinylet/agent/resource/eviction"
	"github.com/tinylet/tinylet/agent/resource/podcgroup"
	"github.com/tinylet/tinylet/agent/resource/selfprotect"
	"github.com/tinylet/tinylet/agent/server/local"
	"github.com/tinylet/tinylet/agent/server/stats"
	"github.com/tinylet/tinylet/agent/server/streaming"
	"github.com/tinylet/tinylet/agent/source"
	"github.com/tinylet/tinylet/agent/source/objects"
	"github.com/tinylet/tinylet/cgroups"
)

// Run runs the agent on the runtime of cfg until ctx ends, and then returns nil; the pods
// keep running. It claims the node before it writes anything or changes any process. It
// returns an error only for what a restart does not cure: an invalid configuration, another
// agent on this node, a claim that cannot be made.
func Run(ctx context.Context, cfg *config.Config, log *slog.Logger) error {
	claim, err := local.ClaimNode(cfg.Tinylet.SocketPath)
	if err != nil {
		return err
	}
	defer claim.Release()
	driver, err := cri.New(cri.Config{
		RuntimeEndpoint: cfg.Kubelet.ContainerRuntimeEndpoint,
		ImageEndpoint:   cfg.Kubelet.ImageServiceEndpoint,
		Timeout:         cfg.Kubelet.RuntimeRequestTimeout.Duration,
		Log:             log,
	})
	if err != nil {
		return err
	}
	tree, err := cgroups.Open(cgroups.DefaultRoot)
	if err != nil {
		return errors.Join(fmt.Errorf("%w; `tinylet check` shows the remedy", err), driver.Close())
	}
	native, err := containerd.New(cfg.Kubelet.ContainerRuntimeEndpoint)
	if err != nil {
		return errors.Join(err, driver.Close())
	}
	env := environment{cfg: cfg, runtime: driver, native: native, runtimeCalls: driver.Calls, tree: tree, guard: newGuard(cfg, tree, log), log: log}
	return errors.Join(env.run(ctx), native.Close(), driver.Close())
}

// environment is what the agent runs in. In tests native, runtimeCalls, tree and guard may be
// nil.
type environment struct {
	cfg     *config.Config
	runtime container.Runtime
	native  *containerd.API
	// runtimeCalls returns the number of calls of the runtime.
	runtimeCalls func() uint64
	tree         *cgroups.Tree
	guard        *selfprotect.Guard // nil if ownCgroup is false
	log          *slog.Logger
}

// newGuard returns the protection of this process and, once it connects, of the container
// runtime; nil if the configuration disables both.
func newGuard(cfg *config.Config, tree *cgroups.Tree, log *slog.Logger) *selfprotect.Guard {
	if !*cfg.Tinylet.OwnCgroup {
		return nil
	}
	socket, _ := cri.SocketPath(cfg.Kubelet.ContainerRuntimeEndpoint) // cri.New has checked it
	return selfprotect.NewGuard(tree, socket, int(*cfg.Kubelet.OOMScoreAdj), log)
}

// run is Run in an environment.
func (env environment) run(ctx context.Context) error {
	a, err := assemble(env)
	if err != nil {
		return err
	}
	if err := a.assembleNetwork(); err != nil {
		return err
	}
	if err := tunables.Prepare(a.cfg, "/proc", a.log); err != nil {
		return err
	}
	a.shutdown.RemoveFlag()
	a.log.Info("starting tinylet", "version", version.Kubelet(), "node", a.cfg.NodeName, "runtime", a.cfg.Kubelet.ContainerRuntimeEndpoint)
	tasksCtx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	if a.cgroups != nil {
		// Release the workers that wait for systemd.
		defer context.AfterFunc(tasksCtx, a.cgroups.Close)()
		defer a.cgroups.Close()
	}
	var wg sync.WaitGroup
	wg.Go(func() { a.stop(ctx, tasksCtx, cancel) })
	for _, t := range a.tasks() {
		wg.Go(func() { a.supervisor.Run(tasksCtx, &t) })
	}
	wg.Wait()
	if a.poller != nil {
		a.poller.Close() // its task may have been waiting for a restart
	}
	if a.cluster != nil && a.cluster.journal != nil {
		err = a.cluster.journal.Close()
	}
	a.log.Info("stopped tinylet", "nodeShutdown", a.shutdown.InProgress())
	return err
}

// agent holds the components of the agent.
type agent struct {
	environment

	sources    []health.Task
	mux        *source.Mux
	pleg       *pleg.PLEG
	loop       *syncloop.Loop
	local      *local.Server
	statuses   *podstatus.Store
	events     *event.Recorder
	wakeups    *podworker.Wakeups
	workers    *podworker.Workers
	cluster    *cluster                                    // nil on a standalone node
	usage      func(context.Context) (*local.Usage, error) // nil without cgroups
	node       *nodeinfo.Info
	shutdown   *shutdown.Manager
	supervisor *health.Supervisor
	// shutdownFlag is a file that exists if the agent is stopped for a node shutdown.
	shutdownFlag string
	stopping     chan struct{}      // closed when the agent stops
	systemd      *sdnotify.Notifier // nil unless systemd expects notifications

	syncer  *podsync.Syncer
	volumes *volume.Manager
	objects *objects.Folder
	probes  *probe.Manager
	rotator *logrotate.Rotator
	images  *image.GC
	preload *preload.Preloader  // nil without native API
	reaper  *reaper.Reaper      // nil without cgroups
	orphans *reaper.Orphans     // nil without cgroups
	stats   *stats.Source       // nil without cgroups
	poller  *cgroups.Poller     // nil without cgroups
	cgroups *podcgroup.Driver   // nil without cgroups
	cpus    *cpumanager.Manager // nil with the CPU manager policy none
	network *network.Network    // nil in tests
	// networkTasks set up, or remove, routes and Services.
	networkTasks []health.Task

	eviction  *eviction.Manager
	evictable *podsync.Evictable

	disks   *diskusage.Meter
	streams *streaming.Handler
	nodeAPI *nodeAPI // nil on a standalone node
}

// assemble builds all components but the network, and starts no task. It requires the claim of
// the node: it sets the limits of the reserved cgroups and opens the journal.
func assemble(env environment) (*agent, error) {
	a := &agent{
		environment: env,
		statuses:    podstatus.NewStore(),
		events:      event.NewRecorder(env.log),
		wakeups:     podworker.NewWakeups(),
		supervisor:  health.NewSupervisor(env.log),
		stopping:    make(chan struct{}),
	}
	a.pleg = pleg.New(pleg.Config{Runtime: a.runtime, Log: a.log, Connected: a.runtimeConnected})
	if err := cpumanager.Reserve(&a.cfg.Kubelet); err != nil {
		return nil, err
	}
	var err error
	if a.node, err = nodeinfo.New(a.cfg, a.runtime, a.tree); err != nil {
		return nil, err
	}
	if a.tree != nil {
		if a.poller, err = a.tree.NewPoller(); err != nil {
			return nil, err
		}
		a.cgroups = podcgroup.New(a.tree, a.node.SystemdCgroups)
	}
	for _, stage := range []func() error{
		a.assembleEviction, a.assembleCluster, a.assembleSources, a.assembleShutdown, a.enforceReserved, a.assembleBackground,
		a.assembleCPUs, a.assembleWorkers, a.assembleSystemd, a.assembleServers,
	} {
		if err := stage(); err != nil {
			return nil, err
		}
	}
	return a, nil
}

// enforceReserved sets the limits of the cgroups for which resources are reserved.
func (a *agent) enforceReserved() error {
	podcgroup.EnforceReserved(a.cfg, a.tree, a.node.WithDriver(criconfig.DriverCgroupfs), a.events, a.log)
	return nil
}

// assembleWorkers builds the pod workers and the sync loop.
func (a *agent) assembleWorkers() error {
	a.syncer = a.newSyncer()
	if a.syncer.OOM != nil {
		a.eviction.OOMCheck = a.syncer.OOM.Check
	}
	a.workers = podworker.NewWorkers(podworker.Config{
		Syncer: a.journaledSyncer(), Wakeups: a.wakeups, OnTerminated: a.podTerminated, Log: a.log,
	})
	a.evictable = &podsync.Evictable{Syncer: a.syncer, Workers: a.workers}
	if a.cluster != nil {
		a.evictable.Recorded = a.cluster.isRecorded
	}
	a.eviction.Pods = a.evictable
	a.loop = syncloop.New(syncloop.Config{
		Updates: a.mux.Updates(), MarkSeen: a.sourceSeen, OnStatusReconciled: a.syncer.OnStatusReconciled,
		// Without any source the configuration is wrong: remove no running pod.
		Ready:   func() bool { return len(a.sources) > 0 && a.mux.Ready() },
		Changes: a.pleg.Changes(), Snapshots: a.pleg.Snapshots(),
		Workers: a.workers, ListOrphans: a.syncer.ListOrphans, Log: a.log,
	})
	return nil
}

// sourceSeen is called when the sync loop has the pods of a source.
func (a *agent) sourceSeen(source string) {
	a.mux.Seen(source)
	if a.mux.Ready() {
		a.syncer.SourcesReady()
	}
	if a.cluster != nil {
		a.cluster.reporter.Trigger("") // orphaned mirror pods can be deleted now
	}
}

// podTerminated is called when a pod is terminated.
func (a *agent) podTerminated(uid types.UID) {
	a.shutdown.Notify()
	if a.cluster != nil {
		a.cluster.reporter.Trigger(uid)
	}
}

// journaledSyncer returns the syncer of the workers, with the journal if there is one.
func (a *agent) journaledSyncer() podworker.Syncer {
	if a.cluster == nil || a.cluster.journal == nil {
		return a.syncer
	}
	a.cluster.journaled = podsync.NewJournaled(a.syncer, a.cluster.journal, a.cluster.reporter.Trigger)
	return a.cluster.journaled
}
