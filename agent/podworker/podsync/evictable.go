package podsync

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tinylet/tinylet/agent/metrics"
	"github.com/tinylet/tinylet/agent/pod"
	"github.com/tinylet/tinylet/agent/podworker"
	"github.com/tinylet/tinylet/agent/podworker/podstatus"
	"github.com/tinylet/tinylet/agent/resource/eviction/policy"
)

// Evictable lists and terminates the node's pods for the eviction manager, the node shutdown
// and the reaper. It is safe for concurrent use.
type Evictable struct {
	*Syncer
	Workers *podworker.Workers
	// Recorded reports whether the journal or the API server has the final status of a pod of
	// the API server; nil on a standalone node.
	Recorded func(types.UID) bool
}

// Running implements eviction.Pods. It lists the syncing and terminating pods with a ready
// sandbox. It omits terminating pods with a terminal phase.
func (a *Evictable) Running() (out []pod.Entry) {
	states := a.Workers.States()
	for _, e := range a.Statuses.List() {
		state := states[e.Pod.UID]
		terminating := state == podworker.Terminating && !pod.IsTerminal(e.Status.Phase)
		if e.Sandbox.ID != "" && (state == podworker.Syncing || terminating) {
			out = append(out, e)
		}
	}
	return out
}

// Active implements eviction.Pods.
func (a *Evictable) Active() (out []pod.Entry) {
	states := a.Workers.States()
	for _, e := range a.Statuses.List() {
		if state := states[e.Pod.UID]; state == podworker.Waiting || state == podworker.Syncing {
			out = append(out, e)
		}
	}
	return out
}

// Unfinished returns the pods that are not terminated, for a node shutdown.
func (a *Evictable) Unfinished() (pods []*v1.Pod) {
	for _, e := range a.Statuses.List() {
		if !a.Workers.IsTerminated(e.Pod.UID) {
			pods = append(pods, e.Pod)
		}
	}
	return pods
}

// UnknownPods returns the UIDs of the pods that terminate and have no status, because their spec
// is not known.
func (a *Evictable) UnknownPods() map[types.UID]bool {
	unknown := make(map[types.UID]bool)
	for uid, state := range a.Workers.States() {
		if _, _, known := a.Statuses.Get(uid); state == podworker.Terminating && !known {
			unknown[uid] = true
		}
	}
	return unknown
}

// Evict implements eviction.Pods.
func (a *Evictable) Evict(evicted *v1.Pod, why policy.Eviction) <-chan struct{} {
	e := reportOf(why)
	return a.Workers.Evict(evicted.UID, why.Grace, func() { a.EvictWith(evicted.UID, e) })
}

func reportOf(why policy.Eviction) *Eviction {
	e := &Eviction{
		Reason: podstatus.Reason{Reason: policy.Reason, Message: why.Message}, Annotations: why.Annotations, Signal: why.Signal,
	}
	if why.Condition != nil {
		e.Disruption = &podstatus.Reason{Reason: why.Condition.Reason, Message: why.Condition.Message}
	}
	return e
}

// Kill implements eviction.Pods.
func (a *Evictable) Kill(killed *v1.Pod) error { return a.KillProcesses(killed.UID) }

// Rehearse implements eviction.Pods.
func (a *Evictable) Rehearse(why policy.Eviction) {
	const none = types.UID("00000000-0000-0000-0000-000000000000")
	e := reportOf(why)
	podworker.RehearseEvict(none, why.Grace, func() {
		a.EvictWith(none, e)
		new(syncState).evict(e, new(metrics.CounterVec))
	})
	if err := a.KillProcesses(none); err != nil {
		a.Log.Debug("cannot rehearse the kill of a pod", "error", err)
	}
}

// NotifyChanges implements eviction.Pods.
func (a *Evictable) NotifyChanges(slot chan<- struct{}) (cancel func()) {
	return a.Statuses.Notify(slot)
}

// IsRecorded reports whether a pod is terminated and its containers are not needed as the
// record of that. For a static pod they are the only record. But an evicted static pod
// starts again with the agent in any case.
func (a *Evictable) IsRecorded(uid types.UID) bool {
	state, ok := a.Workers.State(uid)
	if !ok || state != podworker.Terminated {
		return false
	}
	of, s, ok := a.Statuses.Get(uid)
	switch {
	case !ok:
		return false
	case pod.IsStatic(of):
		return s.Phase == v1.PodFailed && s.Reason == policy.Reason
	}
	return a.Recorded != nil && a.Recorded(uid)
}
