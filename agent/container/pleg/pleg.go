// Package pleg is the pod lifecycle event generator. It reports which pods to
// sync because their state in the runtime changed, and which pods the runtime
// has.
//
// A change carries no state, only the pod's UID. The consumer observes the pod again. So
// late, duplicate and reordered events have no effect, and a relist finds what the event
// stream loses. The PLEG relists
//   - at the start,
//   - when the stream opens or breaks,
//   - 2 s after it opened, and 2 s after a sandbox was deleted,
//   - when an event does not identify its pod,
//   - after a failed heartbeat,
//   - every 48 s until a stream has delivered its first event,
//   - every 10 minutes otherwise, and every second without a stream.
//
// In an idle minute with a working stream it makes one call, the heartbeat. A stream is
// silent while nothing happens, so without the heartbeat a hung runtime could not be
// distinguished from an idle one.
package pleg

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/tinylet/tinylet/agent/container"
	"github.com/tinylet/tinylet/agent/metrics"
	"github.com/tinylet/tinylet/agent/pod"
)

// Periods. All but pollPeriod vary at random by up to a tenth.
const (
	relistPeriod    = 10 * time.Minute
	pollPeriod      = time.Second
	heartbeatPeriod = time.Minute
	heartbeatLimit  = 10 * time.Second
	// unprovenPeriod is short enough that relists replace the heartbeat.
	unprovenPeriod = 48 * time.Second
	// silenceLimit is how long the runtime may be silent before it counts as
	// unhealthy: a heartbeat, its limit and two retries.
	silenceLimit = 2 * time.Minute
	retryFirst   = 100 * time.Millisecond
	retryMax     = 5 * time.Second
	// relistGap limits the rate of requested relists, as in a burst of events without a
	// pod.
	relistGap = time.Second
	// repeatDelay is the time after which a relist that may have been too early is
	// repeated.
	repeatDelay = 2 * time.Second
	listLimit   = 30 * time.Second
)

// Pod is one pod in the runtime, running or not.
type Pod struct {
	Ref pod.Ref
	// GracePeriod is the termination grace period that its containers were created
	// with; negative if they do not have it.
	GracePeriod time.Duration
	// Running reports whether a sandbox is ready or a container runs.
	Running bool
}

// Config configures a PLEG. All fields but Connected are required.
type Config struct {
	Runtime interface {
		ListPodSandbox(ctx context.Context, filter *runtimeapi.PodSandboxFilter) ([]*runtimeapi.PodSandbox, error)
		ListContainers(ctx context.Context, filter *runtimeapi.ContainerFilter) ([]*runtimeapi.Container, error)
		Status(ctx context.Context) (*runtimeapi.StatusResponse, error)
		container.Events
	}
	// Connected is called each time an event stream opens, because the runtime may be
	// another process than before. It must not block for long. It may be nil. A runtime
	// without events may cause a call at each attempt to subscribe.
	Connected func()
	Log       *slog.Logger
}

// PLEG watches one runtime.
type PLEG struct {
	cfg       Config
	changes   chan types.UID
	snapshots chan []Pod
	wake      chan struct{} // one slot: pending or fresh changed
	relistNow chan struct{} // one slot
	// relistSoon has one slot: relist again after repeatDelay.
	relistSoon chan struct{}

	mu           sync.Mutex
	pending      []types.UID          // not delivered yet, each once
	queued       map[types.UID]bool   // the set of pending
	changedAgain bool                 // the first of pending changed while it was offered
	snapshot     []Pod                // the newest snapshot, nil once delivered
	owners       map[string]types.UID // container and sandbox ID -> pod
	lastSeen     time.Time            // when the runtime last responded or sent an event
	lastErr      error                // of the last call
	failing      bool                 // the last call failed
	streamState  streamState
	started      time.Time

	// relistDurations are those of all relists, relistIntervals the times between the
	// start of a relist and that of the last successful one before it.
	relistDurations, relistIntervals metrics.Timing
}

// New returns a PLEG. It starts nothing.
func New(cfg Config) *PLEG {
	return &PLEG{
		cfg:        cfg,
		changes:    make(chan types.UID),
		snapshots:  make(chan []Pod),
		wake:       make(chan struct{}, 1),
		relistNow:  make(chan struct{}, 1),
		relistSoon: make(chan struct{}, 1),
		queued:     make(map[types.UID]bool),
		owners:     make(map[string]types.UID),
	}
}

// Changes returns the channel of the UIDs of pods to sync. A UID that is not
// received yet is delivered once. It is delivered twice if the pod changed
// while the UID was offered, because it is unknown then whether the consumer
// received it before the change.
func (p *PLEG) Changes() <-chan types.UID { return p.changes }

// Snapshots returns the channel of the pods that the runtime had at the last
// relist. The next snapshot replaces one that is not received.
func (p *PLEG) Snapshots() <-chan []Pod { return p.snapshots }

// Run watches the runtime until ctx ends, and returns the cause. It retries after each
// failure of the runtime. It waits for the calls in progress.
func (p *PLEG) Run(ctx context.Context) error {
	p.mu.Lock()
	p.started = time.Now()
	p.mu.Unlock()
	var wg sync.WaitGroup
	wg.Go(func() { p.watchEvents(ctx) })
	wg.Go(func() { p.relistLoop(ctx) })
	p.deliver(ctx)
	wg.Wait()
	return context.Cause(ctx)
}

// RecordResponse records that the runtime answered a call of another component. This
// defers the next heartbeat.
func (p *PLEG) RecordResponse() { p.recordResult(nil) }

// Healthy returns an error if the runtime has been silent for longer than silenceLimit:
// since its last response or event, or since the start of Run. Healthy makes no call.
func (p *PLEG) Healthy(now time.Time) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	since := p.lastSeen
	if since.IsZero() {
		since = p.started
	}
	if silent := now.Sub(since); silent > silenceLimit {
		if p.lastErr != nil {
			return fmt.Errorf("no response from the container runtime for %s: %w", silent.Round(time.Second), p.lastErr)
		}
		return fmt.Errorf("no response from the container runtime for %s", silent.Round(time.Second))
	}
	return nil
}

// deliver sends changes and snapshots to the consumer. It makes no calls.
func (p *PLEG) deliver(ctx context.Context) {
	for {
		p.mu.Lock()
		var changes chan types.UID
		var snapshots chan []Pod
		var uid types.UID
		fresh := p.snapshot
		if fresh != nil {
			snapshots = p.snapshots // before the changes, which may be those of its pods
		} else if len(p.pending) > 0 {
			changes, uid = p.changes, p.pending[0]
		}
		p.changedAgain = false
		p.mu.Unlock()
		select {
		case <-ctx.Done():
			return
		case <-p.wake:
		case snapshots <- fresh:
			p.delivered(fresh)
		case changes <- uid:
			p.mu.Lock()
			p.pending = append(p.pending[:0], p.pending[1:]...)
			if p.changedAgain {
				p.pending = append(p.pending, uid)
			} else {
				delete(p.queued, uid)
			}
			p.mu.Unlock()
		}
	}
}

// delivered clears the snapshot unless a newer one has replaced it meanwhile.
func (p *PLEG) delivered(snapshot []Pod) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.snapshot) == len(snapshot) && (len(snapshot) == 0 || &p.snapshot[0] == &snapshot[0]) {
		p.snapshot = nil
	}
}

// changed queues a UID. The caller holds p.mu and wakes deliver.
func (p *PLEG) changed(uid types.UID) {
	if !p.queued[uid] {
		p.queued[uid] = true
		p.pending = append(p.pending, uid)
	} else if p.pending[0] == uid {
		p.changedAgain = true
	}
}

// recordResult records the result of a call to the runtime, and logs when success turns
// into failure or the reverse.
func (p *PLEG) recordResult(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if failed := err != nil; failed != p.failing {
		p.failing = failed
		if failed {
			p.cfg.Log.Warn("container runtime stopped responding", "error", err)
		} else {
			p.cfg.Log.Info("container runtime responds again")
		}
	}
	p.lastErr = err
	if err == nil {
		p.lastSeen = time.Now()
	}
}

func nextBackoff(d time.Duration) time.Duration { return min(2*d, retryMax) }
