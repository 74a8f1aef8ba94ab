package agent

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tinylet/tinylet/agent/config"
	"github.com/tinylet/tinylet/agent/config/evictionapi"
	"github.com/tinylet/tinylet/agent/container"
	"github.com/tinylet/tinylet/agent/container/criconfig"
	"github.com/tinylet/tinylet/agent/node/machine"
	"github.com/tinylet/tinylet/agent/pod"
	"github.com/tinylet/tinylet/agent/podworker"
	"github.com/tinylet/tinylet/agent/podworker/podstatus"
	"github.com/tinylet/tinylet/agent/podworker/podsync"
	"github.com/tinylet/tinylet/agent/resource/diskusage"
	"github.com/tinylet/tinylet/agent/resource/eviction"
	"github.com/tinylet/tinylet/agent/resource/eviction/policy"
)

// evictions end pods when the node runs short, or when they have more on its
// disk than they may.
type evictions struct {
	*parts
	view       *view
	images     container.Images
	thresholds []evictionapi.Threshold
	config     *config.Config
	log        *slog.Logger

	// What the machine and a file system have, which tests set.
	load  func(now time.Time) (machine.Load, error)
	space func(path string) (diskusage.Space, error)

	protected string // the group in which agent and runtime are protected; "" is none
	// keep has what a rehearsal of an eviction uses of the program stay in
	// memory; nil is that nothing is kept.
	keep func(rehearse func())

	limits *eviction.LocalStorage // nil where nobody asks for them
	loop   atomic.Pointer[eviction.Loop]
	fs     atomic.Pointer[layout] // nil until the runtime has told
	signs  signs

	mu    sync.Mutex
	going map[types.UID]chan struct{} // of pods that were evicted and are not gone
}

// newEvictions makes what ends pods; nothing is started.
func newEvictions(cfg *config.Config, images container.Images, view *view, p *parts, log *slog.Logger) (*evictions, error) {
	thresholds, err := config.Thresholds(&cfg.Kubelet)
	if err != nil {
		return nil, err
	}
	e := &evictions{
		parts: p, view: view, images: images, thresholds: thresholds, config: cfg, log: log,
		load:  func(now time.Time) (machine.Load, error) { return machine.ReadLoad(machine.Roots{}, now) },
		space: diskusage.SpaceAt, going: make(map[types.UID]chan struct{}),
	}
	e.signs.look, e.signs.log = e.look, log
	if p.poller != nil {
		e.signs.hear(p.poller, view.tree)
	}
	if isolates := cfg.Kubelet.LocalStorageCapacityIsolation; isolates == nil || *isolates {
		e.limits = eviction.NewLocalStorage(eviction.LocalStorageConfig{Layout: e.kind, Pods: e.limitedPods, Evict: e.evict, AfterCheck: e.look})
	}
	return e, nil
}

// tasks are what runs until the agent ends.
func (e *evictions) tasks() []task {
	all := []task{{name: "evictions", run: e.run}}
	if e.limits != nil {
		all = append(all, task{name: "storage-limits", run: e.limits.Run})
	}
	return all
}

// run watches the node, once the runtime has told where it keeps what: before
// that there are no pods that could be ended.
func (e *evictions) run(ctx context.Context) error {
	l, err := e.awaitLayout(ctx)
	if err != nil {
		return err
	}
	thresholds, ignored := l.kind.Thresholds(e.thresholds)
	for _, s := range ignored {
		e.log.Warn("an eviction threshold is ignored: writable layers have that of the file system that they are on", "signal", s.String())
	}
	observe := e.observer(l)
	e.tellBeyond(observe(ctx))
	k := &e.config.Kubelet
	loop := eviction.New(eviction.Config{
		Thresholds: thresholds, Layout: l.kind, Transition: k.EvictionPressureTransitionPeriod.Duration,
		MaxGrace: seconds(k.EvictionMaxPodGracePeriod),
		Observe:  observe, Pods: e.pods, Reclaim: e.reclaim, Evict: e.evict,
		Kill:                func(p *v1.Pod) error { return e.syncer.KillProcesses(p.UID) },
		DryRun:              e.dryRun,
		ProtectPages:        e.keep,
		OnConditionsChanged: e.changed,
		OnThresholdMet: func(s evictionapi.Signal) {
			e.events.Warning(pod.Ref{}, policy.ReasonThresholdMet, policy.MessageThresholdMet+string(s.Resource()))
		},
		Log: e.log,
	})
	e.loop.Store(loop)
	// A container that starts or ends, and an image that was pulled for one,
	// show in a status.
	cancel := e.statuses.Notify(loop.TriggerChannel())
	defer cancel()
	defer e.signs.close()
	return loop.Run(ctx)
}

// tellBeyond warns of thresholds that are met whatever pods do. Those of memory
// the configuration warns of, since the machine's memory is known to it.
func (e *evictions) tellBeyond(o evictionapi.Observations) {
	for i := range e.thresholds {
		t, seen := &e.thresholds[i], &o[e.thresholds[i].Signal]
		least := t.Value.ForCapacity(seen.Capacity)
		if !seen.Known || least < seen.Capacity || t.Signal.Resource() == v1.ResourceMemory {
			continue
		}
		field := "evictionSoft"
		if t.Hard() {
			field = "evictionHard"
		}
		e.log.Warn("eviction threshold is not less than what there is: all pods that may be evicted will be",
			"field", field+"["+t.Signal.String()+"]", "threshold", least, "capacity", seen.Capacity, "remedy", "set it to what must stay free")
	}
}

// look has the node looked at soon: for who is awake anyway, since neither
// disks nor process IDs give a sign of their own. It does not block.
func (e *evictions) look() {
	if loop := e.loop.Load(); loop != nil {
		loop.Trigger()
	}
}

// looked has the node looked at soon, after the agent was awake for something
// else. Disk eviction depends on these calls.
func (p *parts) looked() { p.evictions.look() }

// under are the pressures that the node is under.
func (e *evictions) under() evictionapi.Conditions {
	if loop := e.loop.Load(); loop != nil {
		return loop.NodeConditions()
	}
	return evictionapi.Conditions{}
}

// arrived is told of each pod that is wanted.
func (e *evictions) arrived(p *v1.Pod) {
	if e.limits != nil {
		e.limits.PodAdded(p)
	}
}

// changed tells of other conditions than before.
func (e *evictions) changed(under evictionapi.Conditions) {
	e.log.Warn("the node's conditions have changed", "under", under.String())
	if e.cluster != nil {
		e.cluster.registrar.Trigger()
	}
}

// evict has a pod fail and end. One that ends already ends sooner.
func (e *evictions) evict(p *v1.Pod, why policy.Eviction) (gone <-chan struct{}) {
	// It is waited for before it is told to end, so that it cannot be gone
	// unheard.
	gone, first := e.await(p.UID)
	if state, ok := e.workers.State(p.UID); !ok || state != podworker.Syncing && state != podworker.Terminating {
		e.gone(p.UID) // it has ended, or was not begun
		return nil
	}
	if first {
		e.syncer.EvictWith(p.UID, evictionOf(&why))
	}
	if !e.workers.TerminatePod(p.UID, why.Grace) && !first {
		return nil // it has had its time
	}
	return gone
}

// dryRun evicts and kills a pod that does not exist, which has no effect.
func (e *evictions) dryRun(why policy.Eviction) {
	nobody := &v1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "00000000-0000-0000-0000-000000000000"}}
	evictionOf(&why)
	e.evict(nobody, why)
	if err := e.syncer.KillProcesses(nobody.UID); err != nil {
		e.log.Debug("cannot rehearse the kill of a pod", "error", err)
	}
}

// await is closed when nothing of the pod runs any more. First says that nobody
// waited for it before.
func (e *evictions) await(uid types.UID) (gone chan struct{}, first bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if gone = e.going[uid]; gone != nil {
		return gone, false
	}
	gone = make(chan struct{})
	e.going[uid] = gone
	return gone, true
}

// evictionOf is what the syncer tells of an eviction.
func evictionOf(why *policy.Eviction) *podsync.Eviction {
	as := &podsync.Eviction{
		Reason: podstatus.Reason{Reason: policy.Reason, Message: why.Message}, Annotations: why.Annotations, Signal: why.Signal,
	}
	if why.Condition != nil {
		as.Disruption = &podstatus.Reason{Reason: why.Condition.Reason, Message: why.Condition.Message}
	}
	return as
}

// gone is told of each pod of which nothing runs any more.
func (e *evictions) gone(uid types.UID) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if c := e.going[uid]; c != nil {
		close(c)
		delete(e.going, uid)
	}
}

// reclaim gives back what the node can spare.
func (e *evictions) reclaim(ctx context.Context, what policy.Reclaim) error {
	if what == policy.DeadContainers {
		return e.syncer.RemoveExited(ctx, e.settled)
	}
	return e.parts.images.RemoveUnused(ctx)
}

// settled says that a pod has ended for good, and that nobody needs its
// containers to know that: the API server has heard of it, or the journal has.
// Of a static pod they are all that says so; but one that was evicted begins
// anew with the agent, whatever they say.
func (e *evictions) settled(uid types.UID) bool {
	state, ok := e.workers.State(uid)
	if !ok || state != podworker.Terminated {
		return false
	}
	p, s, ok := e.statuses.Get(uid)
	switch {
	case !ok:
		return false
	case pod.IsStatic(p):
		return s.Phase == v1.PodFailed && s.Reason == policy.Reason
	case e.cluster == nil:
		return false
	case e.cluster.journal != nil && e.cluster.journal.IsTerminal(uid):
		return true
	}
	known := e.cluster.known.Load()
	if known == nil {
		return false
	}
	for _, k := range *known {
		if k.UID == uid {
			return terminal(k.Status.Phase)
		}
	}
	return false
}

// allPods is the group of all pods' groups; ok is false while the runtime has
// not told how groups are named.
func (e *evictions) allPods() (cgroup string, ok bool) {
	n, ok := e.view.node.peek()
	if !ok {
		return "", false
	}
	return criconfig.QoSCgroup(v1.PodQOSGuaranteed, n), true
}
