package agent

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/tinylet/tinylet/agent/config"
	"github.com/tinylet/tinylet/agent/health"
	"github.com/tinylet/tinylet/agent/resource/eviction"
	"github.com/tinylet/tinylet/agent/resource/eviction/policy"
)

// assembleEviction builds the eviction manager.
func (a *agent) assembleEviction() error {
	thresholds, err := config.Thresholds(&a.cfg.Kubelet)
	if err != nil {
		return err
	}
	k := &a.cfg.Kubelet
	c := eviction.Config{
		Thresholds: thresholds, Transition: k.EvictionPressureTransitionPeriod.Duration,
		MaxGrace:          time.Duration(max(k.EvictionMaxPodGracePeriod, 0)) * time.Second,
		LimitLocalStorage: k.LocalStorageCapacityIsolation == nil || *k.LocalStorageCapacityIsolation,
		RootDir:           a.cfg.Paths.Root, Tree: a.tree, Node: a.node.Peek, ImageFsInfo: a.runtime.ImageFsInfo,
		Reclaim: func(ctx context.Context, what policy.Reclaim) error {
			if what == policy.DeadContainers {
				return a.evictable.RemoveDead(ctx)
			}
			return a.images.RemoveUnused(ctx)
		},
		Events: a.events, Log: a.log,
	}
	if a.poller != nil {
		c.Notifications = eviction.KernelNotifications(a.poller, a.tree)
	}
	a.eviction = eviction.New(c)
	if a.guard != nil {
		a.eviction.AgentCgroup, a.eviction.ProtectPages = a.guard.Cgroup(), a.guard.LockRehearsed
	}
	return nil
}

// evictionTasks are the tasks of the eviction manager.
func (a *agent) evictionTasks() []health.Task {
	all := []health.Task{{Name: "evictions", Run: a.eviction.Run}}
	if a.eviction.EnforcesLocalStorage() {
		all = append(all, health.Task{Name: "storage-limits", Run: a.eviction.RunLocalStorage})
	}
	return all
}

// isRecorded reports whether the journal or the API server has the final status of a pod.
func (c *cluster) isRecorded(uid types.UID) bool {
	return c.journal != nil && c.journal.IsTerminal(uid) || c.reporter.IsTerminal(uid)
}
