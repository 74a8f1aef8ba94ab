package eviction

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/tinylet/tinylet/agent/config/evictionapi"
	"github.com/tinylet/tinylet/agent/container/criconfig"
	"github.com/tinylet/tinylet/agent/node/machine"
	"github.com/tinylet/tinylet/agent/pod"
	"github.com/tinylet/tinylet/agent/pod/event"
	"github.com/tinylet/tinylet/agent/resource/diskusage"
	"github.com/tinylet/tinylet/agent/resource/eviction/policy"
	"github.com/tinylet/tinylet/cgroups"
)

// Config configures a Manager. Status, ReadLoad and Space are read by New.
// The others may be set until Run. Its functions must be safe for concurrent use.
type Config struct {
	*Status    // nil makes a new one
	Thresholds []evictionapi.Threshold
	// Transition is how long a node condition remains after its thresholds were last
	// met. MaxGrace is the longest grace period for a soft threshold.
	Transition, MaxGrace time.Duration
	// LimitLocalStorage means that RunLocalStorage is to be called.
	LimitLocalStorage bool
	// RootDir is the kubelet's root directory, on nodefs.
	RootDir string

	// Tree is the cgroup hierarchy, and Notifications what the kernel reports of it; nil
	// without cgroups.
	Tree          *cgroups.Tree
	Notifications Notifications
	// AgentCgroup is the cgroup whose memory.min protects the agent and the runtime;
	// "" means none.
	AgentCgroup string
	// Node returns what the runtime reported of itself; ok is false before that.
	Node func() (n *criconfig.Node, ok bool)
	// ImageFsInfo returns the file systems of the runtime.
	ImageFsInfo func(context.Context) (*runtimeapi.ImageFsInfoResponse, error)
	// ReadLoad reads the node's load, and Space the space of a file system. nil means
	// that of the machine.
	ReadLoad func(now time.Time) (machine.Load, error)
	Space    func(path string) (diskusage.Space, error)

	Pods Pods
	// DiskUsage measures what pods use on disks.
	DiskUsage DiskUsage
	// Reclaim reclaims a node-level resource.
	Reclaim func(context.Context, policy.Reclaim) error
	// ProtectPages calls rehearse at least once and protects the code pages that each call
	// used from reclaim; nil means that nothing is rehearsed.
	ProtectPages func(rehearse func())
	// OOMCheck finds the kernel's OOM kills. It is called when tasks stall on memory; nil
	// means never.
	OOMCheck func()
	// OnConditionsChanged is called when the node conditions have changed; it may be nil.
	OnConditionsChanged func()

	Events *event.Recorder
	Log    *slog.Logger
}

// Pods lists and evicts pods.
type Pods interface {
	// Running returns the pods of which a process runs, including terminating ones.
	Running() []pod.Entry
	// Active returns the pods that are neither terminating nor terminated.
	Active() []pod.Entry
	// Evict terminates the pod, or shortens its termination, and reports the eviction in
	// its status and as an event. terminated is closed when the pod is terminated. It is
	// nil if the pod was evicted before and its termination is not shortened, or if the
	// pod neither syncs nor terminates.
	Evict(p *v1.Pod, why policy.Eviction) (terminated <-chan struct{})
	// Kill kills the processes of a pod at once, without the runtime.
	Kill(p *v1.Pod) error
	// Rehearse runs the code of Evict and Kill without an effect on any pod.
	Rehearse(why policy.Eviction)
	// NotifyChanges sends to the slot when the status of any pod changes, until cancel is
	// called.
	NotifyChanges(slot chan<- struct{}) (cancel func())
}

// DiskUsage measures what pods use on disks.
type DiskUsage interface {
	// MeasureFully measures every pod again.
	MeasureFully(context.Context) error
	// Pod returns the usage of a pod, with its containers in the order of their names.
	Pod(ctx context.Context, uid string, containers []string) (diskusage.PodUsage, error)
}

// Manager is the eviction manager. Its methods are safe for concurrent use. At most one Run
// and one RunLocalStorage may be active at a time.
type Manager struct {
	Config
	fs atomic.Pointer[fileSystems] // nil until the runtime has answered
}

// New returns a Manager for Run. It starts nothing.
func New(c Config) *Manager {
	if c.Status == nil {
		c.Status = NewStatus()
	}
	m := &Manager{Config: c}
	if m.ReadLoad == nil {
		m.ReadLoad = func(now time.Time) (machine.Load, error) { return machine.ReadLoad(machine.Roots{}, now) }
	}
	if m.Space == nil {
		m.Space = diskusage.SpaceAt
	}
	return m
}

// Run enforces the thresholds until ctx ends, and returns the cause of ctx. It begins
// when the runtime has reported its file systems. Before that nothing is evicted, also not pods
// that still run from before a restart of the agent.
func (m *Manager) Run(ctx context.Context) error {
	fs, err := m.awaitFileSystems(ctx)
	if err != nil {
		return err
	}
	thresholds, ignored := fs.layout.Thresholds(m.Thresholds)
	for _, s := range ignored {
		m.Log.Warn("ignore eviction threshold", "signal", s.String(), "reason", "writable layers are on a file system that has a threshold of its own")
	}
	n := &notifier{source: m.Notifications, trigger: m.Trigger, oomCheck: m.OOMCheck, log: m.Log}
	defer n.close()
	observe := m.observer(fs, n)
	m.warnUnreachable(observe())
	l := newLoop(m, thresholds, fs.layout, observe)
	// The start or exit of a container, and the pull of an image for one, change a status.
	cancel := m.Pods.NotifyChanges(l.podsChanged)
	defer cancel()
	return l.run(ctx)
}

// warnUnreachable warns of thresholds that are met whatever pods use. The configuration
// warns of those of memory, because it knows the machine's memory.
func (m *Manager) warnUnreachable(o evictionapi.Observations) {
	for i := range m.Thresholds {
		t, seen := &m.Thresholds[i], &o[m.Thresholds[i].Signal]
		least := t.Value.ForCapacity(seen.Capacity)
		if !seen.Known || least < seen.Capacity || t.Signal.Resource() == v1.ResourceMemory {
			continue
		}
		field := "evictionSoft"
		if t.Hard() {
			field = "evictionHard"
		}
		m.Log.Warn("eviction threshold is not below the capacity", "field", field+"["+t.Signal.String()+"]",
			"threshold", least, "capacity", seen.Capacity, "effect", "all evictable pods are evicted", "remedy", "set it to the amount that must stay available")
	}
}

func (m *Manager) conditionsChanged(c evictionapi.Conditions) {
	m.Log.Warn("node conditions changed", "conditions", c.String())
	if m.OnConditionsChanged != nil {
		m.OnConditionsChanged()
	}
}
