package oom

import (
	"cmp"
	"log/slog"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tinylet/tinylet/agent/container/criconfig"
	"github.com/tinylet/tinylet/agent/pod"
	"github.com/tinylet/tinylet/cgroups"
)

// notifyInterval is how long notifications of the pods' parent cgroup are suspended after
// one: the file of a cgroup at its limit changes many times a second.
const notifyInterval = time.Second

// Config configures a Watcher. All fields are required unless stated otherwise.
type Config struct {
	Tree *cgroups.Tree
	// Poller notifies of changes of memory.events; nil means that only calls trigger
	// checks.
	Poller *cgroups.Poller
	// Node returns criconfig's node; ok is false until the runtime has reported its
	// cgroup driver.
	Node func() (n *criconfig.Node, ok bool)
	// Pods lists the pods of the node. The Watcher does not change them.
	Pods func() []pod.Entry
	// Wake triggers a sync of the pod by its worker.
	Wake   func(types.UID)
	Events interface {
		Warning(ref pod.Ref, reason, message string)
	}
	// VMStat is the path of vmstat; "" means /proc/vmstat.
	VMStat string
	Log    *slog.Logger
}

// Watcher tracks the OOM counters. Its methods are safe for concurrent use and block only
// on its lock and on kernel files. They call the functions of Config with the lock held:
// these must not block and must not call the Watcher.
type Watcher struct {
	cfg Config

	mu    sync.Mutex
	files *cgroups.Reader
	// hasBaseline means that the counters from before the agent's start are recorded.
	hasBaseline bool
	podsCounts  counts // of the pods' parent cgroup
	// podsLimitHits is how often the limit of that cgroup itself was hit, podsLimitHitAt
	// when it was last observed to rise.
	podsLimitHits  uint64
	podsLimitHitAt time.Time
	pods           map[types.UID]*podCounters

	// outsideKills is the number of kills outside of pods. otherLimitHits holds the limit
	// hits of the other top-level cgroups, otherLimitHitAt when one was last observed to
	// rise; it is zero if a kill followed.
	outsideKills    uint64
	otherLimitHits  map[string]cgroupLimitHits
	otherLimitHitAt time.Time

	watch   *cgroups.Watch
	watched uint64 // the ID of the watched cgroup
}

// New returns a Watcher. It watches nothing before the first call of SetReasons, since
// the cgroup may not exist yet.
func New(c Config) *Watcher {
	c.VMStat = cmp.Or(c.VMStat, "/proc/vmstat")
	return &Watcher{cfg: c, files: c.Tree.NewReader(), pods: make(map[types.UID]*podCounters)}
}

// Check checks all counters, including the system's. It is for triggers from
// elsewhere, such as memory pressure: a system stalls before it runs out of memory. A
// nil Watcher does nothing.
func (w *Watcher) Check() {
	if w == nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.check()
}

// Forget drops the state of a pod that is gone.
func (w *Watcher) Forget(uid types.UID) {
	if w == nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.pods, uid)
}

// arm watches the pods' parent cgroup once it exists, and again when it is replaced:
// systemd removes a slice without pods. The caller must hold the lock.
func (w *Watcher) arm() {
	node, ok := w.cfg.Node()
	if !ok {
		return
	}
	if !w.hasBaseline {
		w.initBaseline(node)
	}
	if w.cfg.Poller == nil {
		return
	}
	path := kubepods(node)
	id, err := w.cfg.Tree.ID(path)
	if err != nil || w.watch != nil && id == w.watched {
		return
	}
	if w.watch != nil {
		w.watch.Close()
	}
	w.watched = id
	w.watch, err = w.cfg.Poller.WatchMemory(path, notifyInterval, w.onEvents)
	if err != nil {
		w.watch = nil
		w.cfg.Log.Debug("cannot watch memory.events of pods", "cgroup", path, "error", err)
	}
}

// onEvents is called for each change of memory.events of the pods' parent cgroup.
func (w *Watcher) onEvents(f cgroups.MemoryEvents, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err == nil && (f.OOMKill.Value != w.podsCounts.kills || f.OOM.Value != w.podsCounts.oom) {
		w.check()
	}
}

func kubepods(n *criconfig.Node) string { return criconfig.QoSCgroup(v1.PodQOSGuaranteed, n) }

// countersOf returns the counters of a pod. It creates them if there are none.
func (w *Watcher) countersOf(uid types.UID) *podCounters {
	l := w.pods[uid]
	if l == nil {
		l = new(podCounters)
		w.pods[uid] = l
	}
	return l
}
