// Package probe runs the startup, liveness and readiness probes of all
// containers of the node and stores their results by container ID.
//
// One goroutine waits for the probe that is due next. A probe has its own
// goroutine only while it runs, so that a target that hangs does not delay
// others. The package uses the monotonic clock, except for the age of a container that
// ran before the agent started and has no saved state.
//
// The rules are those of pkg/kubelet/prober in Kubernetes 1.36:
//
//   - A container is not ready until its readiness probe succeeds, and healthy
//     until its liveness probe fails. With a startup probe it is not started
//     until that probe succeeds, and the other two probes wait for it.
//   - A liveness or startup probe that reached its failure threshold, and a
//     startup probe that succeeded, do not run again until the container is
//     replaced.
//   - A probe that could not be run does not count.
//
// Upstream runs the first probe at the next tick of a ticker. This package runs
// it as soon as initialDelaySeconds allows: readiness at once, startup after at
// most one second, liveness without a delay after one period.
//
// A container keeps its probe state over a restart of the agent, so that the restart does
// not remove it from Services. The state is saved before Config.ResultChanged is called
// (see Config.SaveState). adopt sets the state of a container that has no saved state.
package probe

import (
	"context"
	"log/slog"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tinylet/tinylet/agent/container"
	"github.com/tinylet/tinylet/agent/pod"
	"github.com/tinylet/tinylet/agent/pod/event"
	"github.com/tinylet/tinylet/agent/podworker/handler"
	"github.com/tinylet/tinylet/agent/wait"
)

// ActionRunner runs the action of a probe. *handler.Runner implements it.
type ActionRunner interface {
	Probe(ctx context.Context, h *v1.ProbeHandler, t handler.Target, timeout time.Duration) (handler.Result, error)
}

// Config is the configuration of a Manager. All fields are required unless their
// comments define the zero value.
type Config struct {
	Actions ActionRunner
	// ResultChanged is called after a probe changed the Results of a pod, concurrently
	// for several probes. It must not block.
	ResultChanged func(types.UID)
	// HostIPs returns the node's addresses, for pods with hostNetwork. It must
	// not block. nil means no addresses.
	HostIPs func() []string
	// SavedState is the state that an earlier process of the agent last passed to
	// SaveState; empty means none. State that cannot be decoded is dropped with a
	// warning.
	SavedState []byte
	// SaveState atomically replaces the saved state, which has at most MaxSaved
	// bytes. It is called when the state of a container changes or a pod is removed,
	// not when a probe only confirms the state. It may block. Calls do not overlap.
	// nil means that no state is saved.
	SaveState func([]byte) error
	// BootID is the kernel's boot ID. The saved state of another boot is
	// ignored.
	BootID string
	// Uptime reads a clock that cannot be set and that continues over restarts
	// of the agent; nil means the kernel's monotonic clock.
	Uptime func() time.Duration
	Events *event.Recorder
	Log    *slog.Logger
}

// Manager runs the probes of the pods passed to Observe. Its methods are safe for
// concurrent use. Only Run blocks.
type Manager struct {
	Config

	mu   sync.Mutex
	pods map[types.UID]*podState
	// queue has the checks that wait until they are due.
	queue queue
	// armed is the time at which Run's timer fires; zero if it is stopped.
	armed time.Time
	wake  wait.Wakeup // Run checks the queue again

	// restored is the saved state, by ID, of containers that have not been
	// observed yet. It is dropped at expires.
	restored map[string]*savedContainer
	expires  time.Time
	// version counts the changes of the state.
	version uint64
	unsaved wait.Wakeup // the state has changed

	persistMu        sync.Mutex // locked before mu
	persistedVersion uint64     // the version that was saved
	persistFailed    bool       // the last save failed
}

// New returns a Manager. It starts no probes and no goroutines.
func New(cfg Config) *Manager {
	if cfg.Uptime == nil {
		cfg.Uptime = uptime
	}
	m := &Manager{Config: cfg, pods: make(map[types.UID]*podState), wake: wait.NewWakeup(), unsaved: wait.NewWakeup()}
	m.loadState(cfg.SavedState)
	m.SavedState = nil
	return m
}

// Observe starts and stops probes according to the observed containers of a pod. It is
// called after each observation, before Results. Observe retains the pod. It does not
// change its arguments.
func (m *Manager) Observe(p *v1.Pod, o *container.Observed) {
	if !podHasProbes(p) {
		return
	}
	now := time.Now()
	m.mu.Lock()
	defer m.mu.Unlock()
	st := m.stateOf(p.UID)
	newer := st.pod != p
	st.update(p, o)
	if newer && st.seen {
		m.applyAPIStatus(st, now)
	}
	if p.DeletionTimestamp != nil {
		m.stopRestartProbes(st)
	}
	for i := range st.containers {
		m.syncContainer(st, &st.containers[i], o, now)
	}
	st.seen = true
}

// Results returns the results of the pod's running containers with probes, by
// container ID; nil if there are none. The caller must not change the map.
func (m *Manager) Results(uid types.UID) map[string]pod.ProbeResult {
	m.mu.Lock()
	defer m.mu.Unlock()
	st := m.pods[uid]
	if st == nil {
		return nil
	}
	return st.snapshot()
}

// StopLivenessAndStartup stops the liveness and startup probes of a terminating pod, whose
// containers are no longer restarted. The readiness probes continue, so that a container
// that stops serving becomes unready.
func (m *Manager) StopLivenessAndStartup(uid types.UID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.stopRestartProbes(m.stateOf(uid))
}

// Changes returns a channel that receives after the Results of a pod have changed, once for
// changes in a short time. It is for the one worker of the pod.
func (m *Manager) Changes(uid types.UID) <-chan struct{} {
	m.mu.Lock()
	defer m.mu.Unlock()
	st := m.stateOf(uid)
	if st.changes == nil {
		st.changes = wait.NewWakeup()
	}
	return st.changes
}

// RemovePod stops all probes of a pod and drops their results.
func (m *Manager) RemovePod(uid types.UID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	st := m.pods[uid]
	if st == nil {
		return
	}
	for i := range st.containers {
		m.stopTarget(st.containers[i].target)
	}
	delete(m.pods, uid)
	m.markChanged()
}

// stateOf returns the state of a pod. It creates the state if there is none. The caller
// holds the lock.
func (m *Manager) stateOf(uid types.UID) *podState {
	st := m.pods[uid]
	if st == nil {
		st = new(podState)
		m.pods[uid] = st
	}
	return st
}
