// Package probe runs the startup, liveness and readiness probes of all
// containers of the node and keeps what they found, by container ID.
//
// One goroutine waits for the probe that is due next; a probe has a goroutine
// of its own only while it is in flight, so that a target that hangs delays
// nobody. Nothing here reads a clock that can be set, except to learn how old
// a container is that ran before the agent did.
//
// The rules are those of pkg/kubelet/prober in Kubernetes 1.36:
//
//   - A container is not ready until its first success, healthy until its
//     liveness probe fails, and, with a startup probe, not started until that
//     succeeds; the other two wait for it.
//   - A probe that failed for good, or a startup probe that has an answer, is
//     not run again until there is a new container.
//   - What could not be run at all counts for nothing.
//
// Where upstream leaves the first probe to the phase of a ticker, here it
// comes as soon as initialDelaySeconds allow: readiness at once, startup after
// a second at most, liveness, if it has no delay, after one period.
//
// A container keeps its state over a restart of the agent, which a service
// should not notice. The state is saved before anybody is told of a change (see
// Config.Save). Where no saved state tells of a container, adopt decides.
package probe

import (
	"context"
	"log/slog"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tinylet/tinylet/agent/container"
	"github.com/tinylet/tinylet/agent/pod/event"
	"github.com/tinylet/tinylet/agent/podworker/handler"
)

// Failure is a probe's verdict that a container has to be restarted.
type Failure struct {
	// Kind is Liveness or Startup.
	Kind string
	// Grace is the probe's own terminationGracePeriodSeconds; nil leaves the
	// pod's.
	Grace *int64
	// Message says it as upstream's Killing event does: "Container web failed
	// liveness probe".
	Message string
}

// Result is what the probes of one container say of it.
type Result struct {
	Started, Ready bool
	// Failed is not nil once the container has to be restarted.
	Failed *Failure
}

// Actions runs a probe's action; *handler.Runner does.
type Actions interface {
	Probe(ctx context.Context, h *v1.ProbeHandler, t handler.Target, timeout time.Duration) (handler.Result, error)
}

// Config is what a Manager works with. All fields are required but those that
// say otherwise.
type Config struct {
	// Exec runs commands in containers. Not used where Actions is set.
	Exec handler.Exec
	// Actions runs the probes; nil makes an handler.Runner on Exec.
	Actions Actions
	// Changed is called, from any goroutine, after a pod's Results changed by
	// a probe. It must not block.
	Changed func(types.UID)
	// HostIPs are the node's addresses, for pods on the host's network. It
	// must not block. nil means that there are none.
	HostIPs func() []string
	// Saved is what Save was given last, by an earlier run of the agent; empty is
	// nothing. What cannot be read is dropped with a warning.
	Saved []byte
	// Save replaces the saved state, of MaxSaved bytes at most: as a whole, or
	// not at all. It is called when the state of a container changes and not
	// when a probe only confirms it, and never twice at once. nil saves nothing.
	Save func([]byte) error
	// BootID is the kernel's. The saved state of another boot counts for
	// nothing.
	BootID string
	// Uptime reads a clock that runs on over restarts of the agent and that
	// nobody sets; nil is the kernel's monotonic one.
	Uptime func() time.Duration
	Events *event.Recorder
	Log    *slog.Logger
}

// Manager runs the probes of the pods that it is shown. Its methods are safe
// for concurrent use, and none but Run blocks.
type Manager struct {
	Config

	mu   sync.Mutex
	pods map[types.UID]*podState
	// queue holds the checks that wait for their time.
	queue queue
	// armed is for when Run's timer is set; zero if it is not.
	armed time.Time
	wake  chan struct{} // holds one: look at the queue again

	// earlier is the saved state of containers that were not seen yet, by ID. It
	// is dropped at expires.
	earlier map[string]*savedContainer
	expires time.Time
	// version counts the changes of the state.
	version uint64
	unsaved chan struct{} // holds one: the state has changed

	storing sync.Mutex // taken before mu
	stored  uint64     // the version that was saved
	failing bool       // the last save failed
}

// New makes a Manager; nothing is started.
func New(cfg Config) *Manager {
	if cfg.Actions == nil {
		cfg.Actions = handler.New(handler.Config{Exec: cfg.Exec})
	}
	if cfg.Uptime == nil {
		cfg.Uptime = uptime
	}
	m := &Manager{Config: cfg, pods: make(map[types.UID]*podState), wake: make(chan struct{}, 1), unsaved: make(chan struct{}, 1)}
	m.adoptable(cfg.Saved)
	m.Saved = nil
	return m
}

// Observe begins and ends probes by what was observed of a pod: to be called
// after each look, before Results is asked. The pod and the observation are
// kept and not changed.
func (m *Manager) Observe(p *v1.Pod, o *container.Observed) {
	if !probed(p) {
		return
	}
	now := time.Now()
	m.mu.Lock()
	defer m.mu.Unlock()
	st := m.stateOf(p.UID)
	newer := st.pod != p
	st.update(p, o)
	if newer && st.seen {
		m.recall(st, now)
	}
	if p.DeletionTimestamp != nil {
		m.quiet(st)
	}
	for i := range st.containers {
		m.follow(st, &st.containers[i], o, now)
	}
	st.seen = true
}

// Results are what is known of a pod's containers that run and have probes,
// by container ID; nil if there are none. The map is not to be changed.
func (m *Manager) Results(uid types.UID) map[string]Result {
	m.mu.Lock()
	defer m.mu.Unlock()
	st := m.pods[uid]
	if st == nil {
		return nil
	}
	return st.snapshot()
}

// Terminating ends the liveness and startup probes of a pod: nothing is to be
// restarted any more. Readiness goes on, so that a service sees a container
// that stops serving.
func (m *Manager) Terminating(uid types.UID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.quiet(m.stateOf(uid))
}

// Forget ends all probes of a pod and drops their results.
func (m *Manager) Forget(uid types.UID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	st := m.pods[uid]
	if st == nil {
		return
	}
	for i := range st.containers {
		m.end(st.containers[i].target)
	}
	delete(m.pods, uid)
	m.touch()
}

// stateOf is the pod's state, made if there is none.
func (m *Manager) stateOf(uid types.UID) *podState {
	st := m.pods[uid]
	if st == nil {
		st = new(podState)
		m.pods[uid] = st
	}
	return st
}
