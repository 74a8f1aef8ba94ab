package agent

import (
	"context"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tinylet/tinylet/agent/config"
	"github.com/tinylet/tinylet/agent/health"
	"github.com/tinylet/tinylet/agent/pod"
	"github.com/tinylet/tinylet/agent/podworker"
	"github.com/tinylet/tinylet/agent/podworker/podstatus"
	"github.com/tinylet/tinylet/agent/podworker/podsync"
	"github.com/tinylet/tinylet/agent/resource/diskusage"
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
		Pods: evictablePods{a}, DiskUsage: podDisks{a},
		Reclaim: func(ctx context.Context, what policy.Reclaim) error {
			if what == policy.DeadContainers {
				return a.syncer.RemoveExited(ctx, a.isReported)
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

// evictablePods are the pods as the eviction manager sees them.
type evictablePods struct{ *agent }

// Running omits pods that have completed although their sandbox may still run.
func (a evictablePods) Running() (out []pod.Entry) {
	states := a.workers.States()
	for _, e := range a.statuses.List() {
		state := states[e.Pod.UID]
		terminating := state == podworker.Terminating && !pod.IsTerminal(e.Status.Phase)
		if e.Sandbox.ID != "" && (state == podworker.Syncing || terminating) {
			out = append(out, e)
		}
	}
	return out
}

func (a evictablePods) Active() (out []pod.Entry) {
	states := a.workers.States()
	for _, e := range a.statuses.List() {
		if state := states[e.Pod.UID]; state == podworker.Waiting || state == podworker.Syncing {
			out = append(out, e)
		}
	}
	return out
}

func (a evictablePods) Evict(evicted *v1.Pod, why policy.Eviction) <-chan struct{} {
	e := &podsync.Eviction{
		Reason: podstatus.Reason{Reason: policy.Reason, Message: why.Message}, Annotations: why.Annotations, Signal: why.Signal,
	}
	if why.Condition != nil {
		e.Disruption = &podstatus.Reason{Reason: why.Condition.Reason, Message: why.Condition.Message}
	}
	return a.workers.Evict(evicted.UID, why.Grace, func() { a.syncer.EvictWith(evicted.UID, e) })
}

func (a evictablePods) Kill(killed *v1.Pod) error { return a.syncer.KillProcesses(killed.UID) }

func (a evictablePods) NotifyChanges(slot chan<- struct{}) (cancel func()) {
	return a.statuses.Notify(slot)
}

// podDisks measures with the meter, which is built later than the eviction manager.
type podDisks struct{ *agent }

func (a podDisks) MeasureFully(ctx context.Context) error { return a.disks.MeasureFully(ctx) }

func (a podDisks) Pod(ctx context.Context, uid string, containers []string) (diskusage.PodUsage, error) {
	return a.disks.Pod(ctx, uid, containers)
}

// isReported reports whether a pod is terminated and its containers are not needed as the
// record of that: the API server or the journal has its final status. For a static pod the
// containers are the only record; but an evicted one starts again with the agent, whatever
// they say.
func (a *agent) isReported(uid types.UID) bool {
	state, ok := a.workers.State(uid)
	if !ok || state != podworker.Terminated {
		return false
	}
	of, s, ok := a.statuses.Get(uid)
	switch {
	case !ok:
		return false
	case pod.IsStatic(of):
		return s.Phase == v1.PodFailed && s.Reason == policy.Reason
	case a.cluster == nil:
		return false
	case a.cluster.journal != nil && a.cluster.journal.IsTerminal(uid):
		return true
	}
	return a.cluster.reporter.IsTerminal(uid)
}
