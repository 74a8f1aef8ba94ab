// Package agent puts the node agent together: it claims the node, builds every
// part from one Config, and runs their tasks, each by its name, until the
// agent is told to end.
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
	"github.com/tinylet/tinylet/agent/health/sdnotify"
	"github.com/tinylet/tinylet/agent/network"
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
	"github.com/tinylet/tinylet/agent/resource/podcgroup"
	"github.com/tinylet/tinylet/agent/resource/selfprotect"
	"github.com/tinylet/tinylet/agent/server/local"
	"github.com/tinylet/tinylet/agent/server/streaming"
	"github.com/tinylet/tinylet/agent/source"
	"github.com/tinylet/tinylet/agent/source/objects"
	"github.com/tinylet/tinylet/cgroups"
)

// Run runs the agent on the runtime that cfg names until ctx ends, and then
// returns nil; the pods stay as they are. It claims the node before it writes
// anything or changes any process. It fails only on what another start would
// not cure: a configuration that cannot work, another agent on this node, a
// claim that cannot be made.
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
		return errors.Join(fmt.Errorf("%w; `tinylet check` tells more", err), driver.Close())
	}
	below, err := newBelow(cfg.Kubelet.ContainerRuntimeEndpoint)
	if err != nil {
		return errors.Join(err, driver.Close())
	}
	guard := newGuard(cfg, tree, log)
	return errors.Join(run(ctx, cfg, driver, below, driver.Calls, tree, guard, log), below.Close(), driver.Close())
}

// below is what is asked of containerd past CRI.
type below struct {
	*containerd.Store
	*containerd.Tasks
}

func newBelow(endpoint string) (*below, error) {
	store, err := containerd.New(endpoint)
	if err != nil {
		return nil, err
	}
	tasks, err := containerd.NewTasks(endpoint)
	return &below{Store: store, Tasks: tasks}, err
}

// newGuard protects this process and, once it connects, the container runtime; nil
// where the configuration wants neither.
func newGuard(cfg *config.Config, tree *cgroups.Tree, log *slog.Logger) *selfprotect.Guard {
	if !*cfg.Tinylet.OwnCgroup {
		return nil
	}
	socket, _ := cri.SocketPath(cfg.Kubelet.ContainerRuntimeEndpoint) // cri.New has checked it
	return selfprotect.NewGuard(tree, socket, int(*cfg.Kubelet.OOMScoreAdj), log)
}

// run is Run on any runtime and any cgroup tree; below, calls, tree and guard
// may be nil.
func run(ctx context.Context, cfg *config.Config, runtime container.Runtime, below *below, calls func() uint64, tree *cgroups.Tree, guard *selfprotect.Guard, log *slog.Logger) error {
	a, err := assemble(cfg, runtime, below, calls, tree, guard, log)
	if err != nil {
		return err
	}
	if err := a.assembleNetwork(cfg, runtime, log); err != nil {
		return err
	}
	if err := tunables.Prepare(cfg, "/proc", log); err != nil {
		return err
	}
	a.forgetFlag(log)
	log.Info("tinylet starts", "version", version.Kubelet(), "node", cfg.NodeName, "runtime", cfg.Kubelet.ContainerRuntimeEndpoint)
	told := ctx
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	if a.cgroups != nil {
		// Workers that wait for systemd do so no longer.
		defer context.AfterFunc(ctx, a.cgroups.Close)()
		defer a.cgroups.Close()
	}
	var wg sync.WaitGroup
	wg.Go(func() { a.whenTold(told, ctx, cancel, log) })
	for _, t := range a.tasks() {
		wg.Go(func() { a.supervisor.run(ctx, &t) })
	}
	wg.Wait()
	if a.poller != nil {
		a.poller.Close() // it may have waited to be run again
	}
	if a.cluster != nil && a.cluster.journal != nil {
		err = a.cluster.journal.Close()
	}
	if a.shutdown.InProgress() {
		log.Info("tinylet ends, the machine goes down")
	} else {
		log.Info("tinylet ends, the pods run on")
	}
	return err
}

// parts is what run starts.
type parts struct {
	sources  []task
	mux      *source.Mux
	pleg     *pleg.PLEG
	loop     *syncloop.Loop
	local    *local.Server
	statuses *podstatus.Store
	events   *event.Recorder
	wake     func(types.UID)
	workers  *podworker.Workers
	cluster  *cluster                                    // nil on a board alone
	usage    func(context.Context) (*local.Usage, error) // nil where nobody measures
	nodeName string
	node     *nodeFacts
	runtime  teller // nil where the runtime counts no calls
	shutdown *shutdown.Manager
	flagFile string // says that the machine goes down
	// supervisor runs what tasks lists.
	supervisor *supervisor
	// handedOver is closed when the sync loop has the pods of the journal, and
	// stopping when the agent is told to end.
	handedOver, stopping chan struct{}
	systemd              *sdnotify.Notifier // nil where systemd does not want to be notified

	syncer  *podsync.Syncer
	volumes *volume.Manager
	objects *objects.Folder
	probes  *probe.Manager
	rotator *logrotate.Rotator
	images  *image.GC
	preload *preload.Preloader  // nil without an importer
	lost    *reaper.Reaper      // nil without cgroups
	poller  *cgroups.Poller     // nil without cgroups
	cpus    *cpumanager.Manager // nil where nobody has CPUs alone
	cgroups *podcgroup.Driver   // nil without cgroups
	network *network.Network    // nil where the host's is not touched
	// networkTasks keep, or take away, what belongs to the pods' network.
	networkTasks []task

	evictions *evictions

	disks   *diskusage.Meter
	streams *streaming.Handler
	nodeAPI *nodeAPI // nil where nobody may ask over the network
}

// assemble builds everything and runs no task. The node is claimed: daemons'
// groups get their limits, and the journal is opened.
func assemble(cfg *config.Config, runtime container.Runtime, below *below, calls func() uint64, tree *cgroups.Tree, guard *selfprotect.Guard, log *slog.Logger) (*parts, error) {
	p := &parts{
		statuses: podstatus.NewStore(),
		events:   event.NewRecorder(log),
		nodeName: cfg.NodeName, supervisor: &supervisor{log: log},
		handedOver: make(chan struct{}), stopping: make(chan struct{}),
	}
	p.pleg = pleg.New(pleg.Config{Runtime: runtime, Log: log, Connected: func() { p.connected(guard) }})
	p.runtime, _ = runtime.(teller)
	p.wake = func(uid types.UID) { p.workers.Wake(uid) }
	if err := cpumanager.Reserve(&cfg.Kubelet); err != nil {
		return nil, err
	}
	node, err := newNodeFacts(cfg, runtime, tree)
	if err != nil {
		return nil, err
	}
	p.node = node
	if joins(cfg) {
		if err := p.assembleCluster(cfg, runtime, node, log); err != nil {
			return nil, err
		}
	}
	if err := p.assembleSources(cfg, log); err != nil {
		return nil, err
	}
	p.assembleShutdown(cfg, log)
	podcgroup.EnforceReserved(cfg, tree, node.node(criconfig.DriverCgroupfs), p.events, log)
	if tree != nil {
		if p.poller, err = tree.NewPoller(); err != nil {
			return nil, err
		}
		p.cgroups = podcgroup.New(tree, node.slices)
	}
	view := &view{statuses: p.statuses, tree: tree, node: node}
	if err := p.assembleJobs(cfg, runtime, below, node, view, log); err != nil {
		return nil, err
	}
	if err := p.assembleCPUs(cfg, runtime, tree, node, log); err != nil {
		return nil, err
	}
	if p.evictions, err = newEvictions(cfg, runtime, view, p, log); err != nil {
		return nil, err
	}
	if guard != nil {
		p.evictions.protected, p.evictions.keep = guard.Cgroup(), guard.LockRehearsed
	}
	p.syncer = p.assembleSyncer(cfg, runtime, below, tree, node, log)
	if p.syncer.OOM != nil {
		p.evictions.signs.killed = p.syncer.OOM.Check
	}
	p.workers = podworker.NewWorkers(p.workSyncer(), log)
	p.workers.OnTerminated = p.finished
	view.workers = p.workers
	p.loop = syncloop.New(syncloop.Config{
		Updates: p.mux.Updates(), MarkSeen: p.seen, OnStatusReconciled: p.syncer.OnStatusReconciled,
		// Who configured no source at all made a mistake, and does not want
		// everything that runs to be removed for it.
		Ready:   func() bool { return len(p.sources) > 0 && p.mux.Ready() },
		Changes: p.pleg.Changes(), Snapshots: p.pleg.Snapshots(),
		Workers: p.workers, ListOrphans: p.syncer.ListOrphans, Log: log,
	})
	p.assembleSystemd(log)
	return p, p.assembleDoors(cfg, runtime, calls, view, log)
}

// seen is told of each source whose pods the loop has.
func (p *parts) seen(source string) {
	p.mux.Seen(source)
	if p.mux.Ready() {
		p.syncer.SourcesReady()
	}
	if p.cluster != nil {
		p.cluster.reporter.Trigger("") // mirror pods nobody wants can be told now
	}
}

// finished is told of each pod of which nothing runs any more.
func (p *parts) finished(uid types.UID) {
	p.shutdown.Notify()
	p.evictions.gone(uid)
	if p.cluster != nil {
		p.cluster.reporter.Trigger(uid)
	}
}

// workSyncer is what the workers call.
func (p *parts) workSyncer() podworker.Syncer {
	if p.cluster == nil || p.cluster.journal == nil {
		return p.syncer
	}
	p.cluster.journaled = &journaled{
		Syncer: p.syncer, store: p.cluster.journal, statuses: p.statuses, events: p.events,
		tellable: p.cluster.reporter.Trigger, unkept: make(map[types.UID]bool),
	}
	return p.cluster.journaled
}
