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
	"github.com/tinylet/tinylet/cgroups"
)

// Errors of Shutdown.
var (
	// ErrOff says that the configuration gives pods no time to end.
	ErrOff = errors.New("end the pods: node shutdown is not configured; set shutdownGracePeriod in the configuration and start tinylet anew")
	// ErrCancelled says that the shutdown was taken back before it had ended.
	ErrCancelled = errors.New("node shutdown was cancelled")
)

// Config is what a Manager works with. All fields are required but those that
// say otherwise. No function may block.
type Config struct {
	// Periods are those of the configuration; none leaves every pod alone.
	Periods []Period
	// Pods are the pods that are not over: those that run, those that wait to,
	// and those that are being stopped.
	Pods func() []*v1.Pod
	// End has the pod's worker stop it within at most grace, also if it is
	// stopping already, and fail with ReasonEnded. It may be called twice.
	End func(p *v1.Pod, grace time.Duration)
	// Ended says whether nothing of the pod runs or is mounted any more, which
	// is so for an unknown one. Manager.Look is called when it may have become
	// true.
	Ended func(types.UID) bool
	// Changed is told when InProgress answers something else; may be nil.
	Changed func()
	Events  *event.Recorder
	// FlagFile says by being there that the agent is stopped because the
	// machine goes down; empty is none.
	FlagFile string
	// Root is where systemd's folders and the system bus are looked for; empty
	// is "/".
	Root string
	Log  *slog.Logger
}

// Manager ends the node's pods. It is safe for concurrent use.
type Manager struct {
	cfg  Config
	dial func(ctx context.Context) (login, error)

	look   chan struct{} // one slot: a pod may have ended
	begun  chan struct{} // one slot: there is a new run
	relock chan struct{} // one slot: the node is up again and needs a lock
	short  bool          // it was said that logind waits too short; for watch alone

	mu   sync.Mutex
	run  *run      // nil while the node is up
	lock io.Closer // the inhibitor lock, nil if none is held
}

// origin is who asked for a shutdown.
type origin uint8

const (
	fromHere origin = iota
	fromLogind
	origins
)

// run is one shutdown. The manager's lock guards all but the channels.
type run struct {
	asked     [origins]bool // who has asked and not taken it back
	cancelled chan struct{} // closed when nobody asks any more
	over      bool
	err       error         // how it ended, once it is over
	done      chan struct{} // closed when it is over
}

// New makes a Manager; nothing is started.
func New(cfg Config) *Manager {
	if cfg.Root == "" {
		cfg.Root = "/"
	}
	if cfg.Changed == nil {
		cfg.Changed = func() {}
	}
	m := &Manager{cfg: cfg, look: make(chan struct{}, 1), begun: make(chan struct{}, 1), relock: make(chan struct{}, 1)}
	m.dial = func(ctx context.Context) (login, error) {
		return dialLogind(ctx, filepath.Join(cfg.Root, cgroups.BusSocket))
	}
	return m
}

// Run carries shutdowns out until ctx ends, and watches logind for them where
// there is systemd. It gives the inhibitor lock back when it returns.
func (m *Manager) Run(ctx context.Context) error {
	defer m.release()
	if len(m.cfg.Periods) == 0 {
		<-ctx.Done()
		return context.Cause(ctx)
	}
	var wg sync.WaitGroup
	if m.systemd() {
		wg.Go(func() { m.watch(ctx) })
	}
	m.drive(ctx)
	wg.Wait()
	return context.Cause(ctx)
}

// systemd says whether systemd runs the machine (sd_booted(3)).
func (m *Manager) systemd() bool {
	info, err := os.Lstat(filepath.Join(m.cfg.Root, "run/systemd/system"))
	return err == nil && info.IsDir()
}

// Shutdown has the node's pods end, and blocks until they have, their time is
// over, or ctx ends; the shutdown goes on then, as long as Run does. Who comes
// later waits for the same. It answers ErrOff or ErrCancelled, or why Run
// ended.
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

// Time is how long a shutdown may take.
func (m *Manager) Time() time.Duration { return Total(m.cfg.Periods) }

// Cancel takes back what Shutdown asked for: unless logind asks for it too,
// the node takes pods again. It does not block.
func (m *Manager) Cancel() { m.cancel(fromHere) }

// InProgress says whether the node is going down, from the beginning of a
// shutdown on until it is taken back.
func (m *Manager) InProgress() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.run != nil
}

// Requested says whether the flag file is there.
func (m *Manager) Requested() bool {
	if m.cfg.FlagFile == "" {
		return false
	}
	info, err := os.Lstat(m.cfg.FlagFile)
	return err == nil && info.Mode().IsRegular()
}

// Look says that a pod may have ended. It never blocks.
func (m *Manager) Look() { fill(m.look) }

// begin notes who asks, and begins a shutdown if there is none.
func (m *Manager) begin(who origin) *run {
	m.mu.Lock()
	r := m.run
	fresh := r == nil
	if fresh {
		r = &run{cancelled: make(chan struct{}), done: make(chan struct{})}
		m.run = r
	}
	r.asked[who] = true
	m.mu.Unlock()
	if fresh {
		m.cfg.Events.Normal(pod.Ref{}, reasonShutdown, "Node is shutting down: its pods are stopped")
		m.cfg.Changed()
		fill(m.begun)
	}
	return r
}

// cancel notes that somebody does not ask any more, and brings the node up
// again if nobody does.
func (m *Manager) cancel(who origin) {
	m.mu.Lock()
	r := m.run
	if r == nil || !r.asked[who] {
		m.mu.Unlock()
		return
	}
	r.asked[who] = false
	if r.asked != [origins]bool{} {
		m.mu.Unlock()
		return
	}
	m.run = nil
	close(r.cancelled)
	r.finish(ErrCancelled)
	m.mu.Unlock()
	m.cfg.Events.Normal(pod.Ref{}, reasonShutdown, "Shutdown of the node was cancelled")
	m.cfg.Changed()
	fill(m.relock)
}

// finish ends a run, the first time that it is called. The manager is locked.
func (r *run) finish(err error) {
	if !r.over {
		r.over, r.err = true, err
		close(r.done)
	}
}

// hold keeps an inhibitor lock in place of the one before. One that comes
// after the pods have ended is given back, as logind need not wait for it.
func (m *Manager) hold(lock io.Closer) {
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

// release gives the lock back: logind goes on.
func (m *Manager) release() {
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
		m.cfg.Log.Warn("inhibitor lock was not given back", "error", err)
	}
}

func fill(slot chan struct{}) {
	select {
	case slot <- struct{}{}:
	default:
	}
}
