package oom

import (
	"log/slog"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tinylet/tinylet/agent/container/criconfig"
	"github.com/tinylet/tinylet/agent/pod"
	"github.com/tinylet/tinylet/cgroups"
)

// pause is how long the group of all pods is not heard after it told of
// something: one that lives at its limit tells a hundred times a second.
const pause = time.Second

// Pod is a pod of the node, by its newest status; neither is changed.
type Pod struct {
	Pod    *v1.Pod
	Status *v1.PodStatus
}

// Config is what a Watcher works with. All fields are required but those that
// say otherwise.
type Config struct {
	Tree *cgroups.Tree
	// Poller tells of changes; nil looks only when it is asked.
	Poller *cgroups.Poller
	// Node is criconfig's, and ok false while the runtime has not told its
	// cgroup driver.
	Node func() (n *criconfig.Node, ok bool)
	// Pods lists the pods of the node.
	Pods func() []Pod
	// Wake has the pod's worker look again.
	Wake   func(types.UID)
	Events interface {
		Warning(ref pod.Ref, reason, message string)
	}
	// VMStat is the kernel's file; "" is /proc/vmstat.
	VMStat string
	Log    *slog.Logger
}

// Watcher is the memory of what was counted. Its methods are safe for
// concurrent use, and those that have no context block on nothing but files of
// the kernel's. What it calls must not block and not call it.
type Watcher struct {
	cfg Config

	mu    sync.Mutex
	files *cgroups.Reader
	// based says that what was counted before the agent came is known.
	based bool
	top   counts // of the group of all pods
	// limits is how often that group's own limit could not be kept, met when it
	// was last seen to rise.
	limits uint64
	met    time.Time
	pods   map[types.UID]*ledger

	// outside are kills that no pod has, others how often groups beside the
	// pods' ran into limits.
	outside uint64
	others  map[string]limitOf

	watch   *cgroups.Watch
	watched uint64 // the number of the group that is watched
}

// New makes a Watcher. It watches nothing before it is asked for the first
// time, since there may be no group to watch.
func New(c Config) *Watcher {
	if c.VMStat == "" {
		c.VMStat = "/proc/vmstat"
	}
	return &Watcher{cfg: c, files: c.Tree.NewReader(), pods: make(map[types.UID]*ledger)}
}

// Look looks at all counts, the system's too. It is for signs from elsewhere,
// such as memory pressure: a system that runs out of memory stands still before.
// A nil Watcher does nothing.
func (w *Watcher) Look() {
	if w == nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.look()
}

// Forget drops what is known of a pod that is gone.
func (w *Watcher) Forget(uid types.UID) {
	if w == nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.pods, uid)
}

// arm watches the group of all pods, once there is one, and another one that
// took its place: systemd takes away the slice that no pod is in. It needs the
// lock.
func (w *Watcher) arm() {
	node, ok := w.cfg.Node()
	if !ok {
		return
	}
	if !w.based {
		w.base(node)
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
	w.watch, err = w.cfg.Poller.WatchMemory(path, pause, w.told)
	if err != nil {
		w.watch = nil
		w.cfg.Log.Debug("memory.events of all pods is not watched: ends for memory are looked for when containers end", "cgroup", path, "error", err)
	}
}

// told is called for each change of memory.events of all pods.
func (w *Watcher) told(f cgroups.EventFigures, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err == nil && (f.OOMKill.Value != w.top.kills || f.OOM.Value != w.top.oom) {
		w.look()
	}
}

func kubepods(n *criconfig.Node) string { return criconfig.QoSCgroup(v1.PodQOSGuaranteed, n) }

// ledger is that of a pod, made if there is none.
func (w *Watcher) ledger(uid types.UID) *ledger {
	l := w.pods[uid]
	if l == nil {
		l = new(ledger)
		w.pods[uid] = l
	}
	return l
}
