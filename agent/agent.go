// Package agent is the composition root of the node agent: it claims the node, builds the
// components in stages, each from those before it, and runs their tasks until the agent is
// stopped.
package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"

	"github.com/tinylet/tinylet/agent/config"
	"github.com/tinylet/tinylet/agent/config/version"
	"github.com/tinylet/tinylet/agent/container/containerd"
	"github.com/tinylet/tinylet/agent/container/cri"
	"github.com/tinylet/tinylet/agent/health/sdnotify"
	"github.com/tinylet/tinylet/agent/node/tunables"
	"github.com/tinylet/tinylet/agent/resource/selfprotect"
	"github.com/tinylet/tinylet/agent/server/local"
	"github.com/tinylet/tinylet/cgroups"
)

// Run runs the agent on the runtime of cfg until ctx ends; the pods keep running. It claims
// the node before it writes anything or changes any process. It returns an error if the agent
// cannot start: an invalid configuration, another agent or a kubelet on this node, a claim that cannot be
// made, no usable cgroup v2 hierarchy. After a run it returns the errors of closing the
// journal and the runtime's connections, if any.
func Run(ctx context.Context, cfg *config.Config, log *slog.Logger) error {
	claim, err := local.ClaimNode(cfg.Tinylet.SocketPath, local.DeviceManagerSocket)
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
	env := environment{
		cfg: cfg, runtime: driver, native: native, runtimeCalls: driver.Calls, tree: tree, guard: newGuard(cfg, tree, log),
		hostNetwork: true, log: log,
	}
	return errors.Join(env.run(ctx), native.Close(), driver.Close())
}

// newGuard returns the protection of this process and, once it connects, of the container
// runtime; nil if ownCgroup is false.
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
	if err := tunables.Prepare(a.cfg, "/proc", a.log); err != nil {
		return err
	}
	a.shutdown.RemoveFlag()
	a.log.Info("starting tinylet", "version", version.Kubelet(), "node", a.cfg.NodeName, "runtime", a.cfg.Kubelet.ContainerRuntimeEndpoint)
	tasksCtx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	var wg sync.WaitGroup
	wg.Go(func() { a.stop(ctx, tasksCtx, cancel) })
	a.supervisor.RunStages(tasksCtx, a.stages())
	wg.Wait()
	if a.cgroups != nil {
		a.cgroups.Close()
	}
	if a.poller != nil {
		a.poller.Close() // its task may have been waiting for a restart
	}
	if a.cluster != nil && a.cluster.journal != nil {
		err = a.cluster.journal.Close()
	}
	a.log.Info("stopped tinylet", "nodeShutdown", a.shutdown.InProgress())
	return err
}

type agent struct {
	*core
	cluster *cluster // nil on a standalone node
	*networkStage
	*runtimeStage
	registration *registrationStage // nil on a standalone node
	*podStage
	reporting *reportingStage // nil on a standalone node
	*nodeStage
	*serverStage
	systemd *sdnotify.Notifier // nil unless systemd expects notifications
}

// assemble builds all stages, and starts no task. It requires the claim of the node: it sets the
// limits of the reserved cgroups and opens the journal. After an error the journal and the
// cgroup poller stay open.
func assemble(env environment) (a *agent, err error) {
	a = new(agent)
	if a.core, err = newCore(env); err != nil {
		return nil, err
	}
	if a.cluster, err = newCluster(a.core); err != nil {
		return nil, err
	}
	if a.networkStage, err = newNetworkStage(a.core, a.cluster); err != nil {
		return nil, err
	}
	if a.runtimeStage, err = newRuntimeStage(a.core); err != nil {
		return nil, err
	}
	a.registration = newRegistrationStage(a.core, a.cluster, a.runtimeStage, a.networkStage)
	if a.podStage, err = newPodStage(a.core, a.cluster, a.runtimeStage, a.registration); err != nil {
		return nil, err
	}
	if a.reporting, err = newReportingStage(a.core, a.cluster, a.podStage); err != nil {
		return nil, err
	}
	if a.nodeStage, err = newNodeStage(a.core, a.runtimeStage, a.podStage, a.reporting); err != nil {
		return nil, err
	}
	if a.serverStage, err = newServerStage(a); err != nil {
		return nil, err
	}
	a.systemd = a.newNotifier()
	return a, nil
}
