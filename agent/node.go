package agent

import (
	"context"
	"path/filepath"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/tinylet/tinylet/agent/config/evictionapi"
	"github.com/tinylet/tinylet/agent/container/reaper"
	"github.com/tinylet/tinylet/agent/node/shutdown"
	"github.com/tinylet/tinylet/agent/podworker"
	"github.com/tinylet/tinylet/agent/podworker/podstatus"
	"github.com/tinylet/tinylet/agent/podworker/podsync"
	"github.com/tinylet/tinylet/agent/resource/diskusage"
	"github.com/tinylet/tinylet/agent/resource/eviction"
	"github.com/tinylet/tinylet/agent/resource/eviction/policy"
)

// flagName is the name of the shutdown flag, a file in the directory of the socket. It exists if
// the agent is stopped for a node shutdown.
const flagName = "shutdown"

// nodeStage terminates pods by eviction and node shutdown, and handles lost containers.
type nodeStage struct {
	disks     *diskusage.Meter
	eviction  *eviction.Manager
	evictable *podsync.Evictable
	reaper    *reaper.Reaper // nil without cgroups or native API
	shutdown  *shutdown.Manager
}

func newNodeStage(core *core, rt *runtimeStage, p *podStage, rep *reportingStage) (_ *nodeStage, err error) {
	s := &nodeStage{evictable: &podsync.Evictable{Syncer: p.syncer, Workers: p.workers}}
	if rep != nil {
		s.evictable.Recorded = rep.isRecorded
	}
	s.disks, err = diskusage.New(diskusage.Config{
		Pods: func(ctx context.Context) ([]diskusage.Pod, error) { return p.syncer.DiskPods(ctx), nil },
		Node: core.cfg.Paths.Root, ImageFs: core.runtime.ImageFsInfo, Log: core.log,
	})
	if err != nil {
		return nil, err
	}
	if err := s.addEviction(core, rt, p); err != nil {
		return nil, err
	}
	sc := shutdown.Config{
		State: core.shutdownState, Periods: shutdown.Periods(&core.cfg.Kubelet), Pods: s.evictable.Unfinished,
		End: func(pd *v1.Pod, grace time.Duration) {
			// A pod that already terminates keeps its reason.
			if state, ok := p.workers.State(pd.UID); ok && state != podworker.Terminating {
				p.syncer.Evict(pd.UID, podstatus.Reason{Reason: shutdown.ReasonEnded, Message: shutdown.MessageEnded})
			}
			p.workers.TerminatePod(pd.UID, grace)
		},
		Ended: p.workers.IsTerminated, Changed: core.nodeStatus.Set, Events: core.events, Log: core.log,
		FlagFile: filepath.Join(filepath.Dir(core.cfg.Tinylet.SocketPath), flagName),
	}
	if rep != nil {
		sc.AwaitReported = rep.awaitTerminal
	}
	s.shutdown = shutdown.New(sc)
	if core.native == nil || core.tree == nil {
		return s, nil
	}
	orphans := &reaper.Orphans{Runtime: core.runtime, Tree: core.tree, Node: core.node.Refresh, Pods: s.evictable.UnknownPods}
	s.reaper = reaper.New(reaper.Config{
		Running: func(ctx context.Context) []reaper.Container {
			unknown, err := orphans.List(ctx)
			if err != nil && ctx.Err() == nil {
				core.log.Debug("cannot list containers of orphaned pods", "error", err)
			}
			return append(reaper.RunningContainers(core.statuses.List(), core.node.Peek), unknown...)
		},
		AfterCheck: core.pressure.Trigger, // once a minute, also on a standalone node
		Populated:  core.tree.Populated, Runtime: core.runtime, Tasks: core.native,
		Wake: core.wakeups.Wake, Events: core.events, Log: core.log,
	})
	return s, nil
}

func (s *nodeStage) addEviction(core *core, rt *runtimeStage, p *podStage) error {
	k := &core.cfg.Kubelet
	thresholds, err := evictionapi.Parse(k)
	if err != nil {
		return err
	}
	c := eviction.Config{
		Status: core.pressure, Thresholds: thresholds, Transition: k.EvictionPressureTransitionPeriod.Duration,
		MaxGrace:          time.Duration(max(k.EvictionMaxPodGracePeriod, 0)) * time.Second,
		LimitLocalStorage: k.LocalStorageCapacityIsolation == nil || *k.LocalStorageCapacityIsolation,
		RootDir:           core.cfg.Paths.Root, Tree: core.tree, Node: core.node.Peek, ImageFsInfo: core.runtime.ImageFsInfo,
		Pods: s.evictable, DiskUsage: s.disks,
		Reclaim: func(ctx context.Context, what policy.Reclaim) error {
			if what == policy.DeadContainers {
				return s.evictable.RemoveExited(ctx, s.evictable.IsRecorded)
			}
			return rt.images.RemoveUnused(ctx)
		},
		OnConditionsChanged: core.nodeStatus.Set, Events: core.events, Log: core.log,
	}
	if p.syncer.OOM != nil {
		c.OOMCheck = p.syncer.OOM.Check
	}
	if rt.poller != nil {
		c.Notifications = eviction.KernelNotifications(rt.poller, core.tree)
	}
	if core.guard != nil {
		c.AgentCgroup, c.ProtectPages = core.guard.Cgroup(), core.guard.LockRehearsed
	}
	s.eviction = eviction.New(c)
	return nil
}

// stop cancels the tasks once ctx has ended: at once, or for a node shutdown after the pods are
// terminated.
func (a *agent) stop(ctx, tasks context.Context, cancelTasks context.CancelFunc) {
	defer cancelTasks()
	select {
	case <-ctx.Done():
		close(a.stopping)
		a.shutdown.DrainIfRequested(tasks)
	case <-tasks.Done():
	}
}
