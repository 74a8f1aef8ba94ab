package shutdown

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tinylet/tinylet/agent/pod"
	"github.com/tinylet/tinylet/agent/pod/event"
	"github.com/tinylet/tinylet/agent/store/atomicfile"
	"github.com/tinylet/tinylet/agent/wait"
	"github.com/tinylet/tinylet/cgroups"
)

// Errors of Shutdown.
var (
	// ErrOff means that the configuration gives pods no time to end.
	ErrOff = errors.New("terminate pods: graceful node shutdown is not configured; set shutdownGracePeriod in the configuration and restart tinylet")
	// ErrCancelled means that the shutdown was cancelled before it had ended.
	ErrCancelled = errors.New("node shutdown was cancelled")
)

// Config configures a Manager. All fields are required unless stated otherwise. No
// function but AwaitReported may block.
type Config struct {
	State *State
	// Periods are those of the configuration. Without periods no pod is terminated.
	Periods []Period
	// Pods returns the pods that have not ended: running, waiting and terminating
	// ones.
	Pods func() []*v1.Pod
	// End makes the pod's worker terminate it within at most grace, also if it is
	// terminating already, and fail with ReasonEnded. It may be called twice.
	End func(p *v1.Pod, grace time.Duration)
	// Ended reports whether the pod no longer has a running container or a mounted
	// volume. It returns true for an unknown pod. Call State.Notify when the result may
	// have become true.
	Ended func(types.UID) bool
	// Changed is called when the result of InProgress has changed.
	Changed func()
	Events  *event.Recorder
	// AwaitReported blocks until the API server has received the final statuses of the
	// terminated pods, or ctx ends. It is nil on a standalone node.
	AwaitReported func(ctx context.Context)
	// FlagFile is the path of a file that exists if the agent is stopped because the
	// machine goes down.
	FlagFile string
	// Root is the root of systemd's folders and of the system bus; "" is "/".
	Root string
	Log  *slog.Logger
}

// Manager terminates the node's pods. It is safe for concurrent use.
type Manager struct {
	*State
	cfg  Config
	dial func(ctx context.Context) (login, error)

	started     chan struct{} // one slot: there is a new run
	relock      chan struct{} // one slot: the shutdown was cancelled, take a new lock
	delayLogged bool          // logged that logind's delay is too short; only for watch

	mu   sync.Mutex
	run  *run      // nil while the node is up
	over error     // the cause of the end of Run, nil before that
	lock io.Closer // the inhibitor lock, nil if none is held
}

type requester uint8

const (
	fromHere requester = iota
	fromLogind
	origins
)

// run is one shutdown. Manager.mu guards all fields but the channels.
type run struct {
	requested [origins]bool // requesters that have not cancelled
	cancelled chan struct{} // closed when all requesters have cancelled
	over      bool
	err       error         // the result, once it is over
	done      chan struct{} // closed when it is over
}

// New returns a Manager. It starts nothing.
func New(cfg Config) *Manager {
	if cfg.Root == "" {
		cfg.Root = "/"
	}
	m := &Manager{State: cfg.State, cfg: cfg, started: make(chan struct{}, 1), relock: make(chan struct{}, 1)}
	m.dial = func(ctx context.Context) (login, error) {
		return dialLogind(ctx, filepath.Join(cfg.Root, cgroups.BusSocket))
	}
	return m
}

// Run carries out shutdowns until ctx ends. With systemd it also watches logind for
// them. It releases the inhibitor lock when it returns. It returns the cause of
// ctx.
func (m *Manager) Run(ctx context.Context) error {
	defer m.releaseLock()
	if len(m.cfg.Periods) == 0 {
		<-ctx.Done()
		return context.Cause(ctx)
	}
	var wg sync.WaitGroup
	if cgroups.SystemdRuns(m.cfg.Root) {
		wg.Go(func() { m.watch(ctx) })
	}
	m.drive(ctx)
	wg.Wait()
	return context.Cause(ctx)
}

// Shutdown terminates the node's pods. It blocks until they have ended, their time
// is over, or ctx ends; in the last case the shutdown continues as long as Run
// runs. Concurrent calls wait for the same shutdown. It returns ErrOff,
// ErrCancelled, or the cause of the end of Run or of ctx. After the end of Run it begins
// no shutdown.
func (m *Manager) Shutdown(ctx context.Context) error {
	if len(m.cfg.Periods) == 0 {
		return ErrOff
	}
	r := m.begin(fromHere)
	select {
	case <-r.done:
		return r.err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// reportTimeout bounds the wait for the API server to receive the final statuses.
const reportTimeout = 5 * time.Second

// Drain is Shutdown, and then waits until the API server, if it responds, has received the
// final statuses.
func (m *Manager) Drain(ctx context.Context) error {
	if err := m.Shutdown(ctx); err != nil || m.cfg.AwaitReported == nil {
		return err
	}
	limited, cancel := context.WithTimeout(ctx, reportTimeout)
	defer cancel()
	m.cfg.AwaitReported(limited)
	return nil
}

// stopMargin is added to the grace periods of the pods.
const stopMargin = 10 * time.Second

// DrainIfRequested is Drain if the flag file exists, for at most Total and stopMargin. It is
// called when the agent is to stop, while its tasks still run, and logs errors.
func (m *Manager) DrainIfRequested(ctx context.Context) {
	if !m.Requested() {
		return
	}
	m.cfg.Log.Info("node shutdown requested", "flag", m.cfg.FlagFile)
	limited, cancel := context.WithTimeout(ctx, Total(m.cfg.Periods)+stopMargin)
	defer cancel()
	switch err := m.Drain(limited); {
	case errors.Is(err, ErrOff):
		m.cfg.Log.Info("graceful node shutdown is disabled: shutdownGracePeriod is 0")
	case err != nil:
		m.cfg.Log.Warn("pods did not terminate before the shutdown", "error", err)
	}
}

// Cancel cancels the local request of Shutdown. The node admits pods again unless
// logind has requested a shutdown too. It does not block.
func (m *Manager) Cancel() { m.cancel(fromHere) }

// Requested reports whether the flag file exists.
func (m *Manager) Requested() bool {
	info, err := os.Lstat(m.cfg.FlagFile)
	return err == nil && info.Mode().IsRegular()
}

// begin adds a requester, and begins a shutdown if none is in progress. After the end
// of Run it returns a finished run instead.
func (m *Manager) begin(who requester) *run {
	m.mu.Lock()
	r := m.run
	fresh := r == nil && m.over == nil
	if r == nil {
		r = &run{cancelled: make(chan struct{}), done: make(chan struct{})}
	}
	switch {
	case m.over != nil:
		r.finish(m.over)
	case fresh:
		m.run = r
		m.inProgress.Store(true)
	}
	r.requested[who] = true
	m.mu.Unlock()
	if fresh {
		m.cfg.Events.Normal(pod.Ref{}, reasonShutdown, "Node is shutting down, terminating its pods")
		m.cfg.Changed()
		wait.Notify(m.started)
	}
	return r
}

// cancel removes a requester, and cancels the shutdown if it was the last one.
func (m *Manager) cancel(who requester) {
	m.mu.Lock()
	r := m.run
	if r == nil || !r.requested[who] {
		m.mu.Unlock()
		return
	}
	r.requested[who] = false
	if r.requested != [origins]bool{} {
		m.mu.Unlock()
		return
	}
	m.run = nil
	m.inProgress.Store(false)
	close(r.cancelled)
	r.finish(ErrCancelled)
	m.mu.Unlock()
	m.cfg.Events.Normal(pod.Ref{}, reasonShutdown, "Node shutdown was cancelled")
	m.cfg.Changed()
	wait.Notify(m.relock)
}

// finish stores the result of a run. Only the first call has an effect. The caller
// holds Manager.mu.
func (r *run) finish(err error) {
	if !r.over {
		r.over, r.err = true, err
		close(r.done)
	}
}

// setLock replaces the inhibitor lock. A lock that arrives after the pods have ended
// is released instead, because logind need not wait for it.
func (m *Manager) setLock(lock io.Closer) {
	m.mu.Lock()
	old := m.lock
	if m.run != nil && m.run.over {
		m.lock, old = old, lock
	} else {
		m.lock = lock
	}
	m.mu.Unlock()
	m.closeLock(old)
}

// releaseLock releases the inhibitor lock, so that logind continues.
func (m *Manager) releaseLock() {
	m.mu.Lock()
	lock := m.lock
	m.lock = nil
	m.mu.Unlock()
	m.closeLock(lock)
}

func (m *Manager) closeLock(lock io.Closer) {
	if lock == nil {
		return
	}
	if err := lock.Close(); err != nil {
		m.cfg.Log.Warn("cannot release inhibitor lock", "error", err)
	}
}

// RemoveFlag removes the flag file of an earlier shutdown. It logs an error.
func (m *Manager) RemoveFlag() {
	if err := atomicfile.Remove(m.cfg.FlagFile); err != nil {
		m.cfg.Log.Warn("cannot remove shutdown flag", "path", m.cfg.FlagFile, "effect", "pods are terminated when the agent stops", "error", err)
	}
}
