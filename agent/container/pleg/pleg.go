package pleg

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/tinylet/tinylet/agent/container"
	"github.com/tinylet/tinylet/agent/metrics"
	"github.com/tinylet/tinylet/agent/pod"
)

// Periods, all but poll lengthened or shortened at random by a tenth.
const (
	relistPeriod    = 10 * time.Minute
	pollPeriod      = time.Second
	heartbeatPeriod = time.Minute
	heartbeatLimit  = 10 * time.Second
	// unprovenPeriod is short enough to stand in for the heartbeat.
	unprovenPeriod = 48 * time.Second
	// silenceLimit is how long a runtime may say nothing before it counts as
	// gone: a heartbeat, its limit and two repetitions.
	silenceLimit = 2 * time.Minute
	retryFirst   = 100 * time.Millisecond
	retryMax     = 5 * time.Second
	// relistGap keeps a burst of events without owner from listing each time.
	relistGap = time.Second
	// settleGap is after how long a list that may have been too early is
	// repeated.
	settleGap = 2 * time.Second
	listLimit = 30 * time.Second
)

// Pod is one pod that the runtime holds, running or not.
type Pod struct {
	Ref pod.Ref
	// Grace is the termination grace period that its containers were created
	// with, negative if they do not say.
	Grace time.Duration
	// Running says that a sandbox is ready or a container runs.
	Running bool
}

// Config is what a PLEG works with.
type Config struct {
	Runtime interface {
		ListPodSandbox(ctx context.Context, filter *runtimeapi.PodSandboxFilter) ([]*runtimeapi.PodSandbox, error)
		ListContainers(ctx context.Context, filter *runtimeapi.ContainerFilter) ([]*runtimeapi.Container, error)
		Status(ctx context.Context) (*runtimeapi.StatusResponse, error)
		container.Events
	}
	// Connected is told each time that the runtime's events begin: it may be
	// another process than before. It must not block for long, and may be nil.
	Connected func()
	Log       *slog.Logger
}

// PLEG watches one runtime.
type PLEG struct {
	cfg       Config
	changes   chan types.UID
	snapshots chan []Pod
	news      chan struct{} // one slot: pending or snapshot changed
	relistNow chan struct{} // one slot
	// relistSoon is one slot: list once more, after settleGap.
	relistSoon chan struct{}

	mu      sync.Mutex
	pending []types.UID          // not delivered yet, each once
	waiting map[types.UID]bool   // the same as a set
	again   bool                 // the first of pending changed while it was offered
	fresh   []Pod                // the newest snapshot, nil once delivered
	owners  map[string]types.UID // container and sandbox ID -> pod
	heard   time.Time            // when the runtime last said anything
	lastErr error                // what the last call or the stream failed with
	failing bool                 // the last call failed
	trust   trust                // in the event stream
	started time.Time

	took, apart metrics.Timing // relists, and the time between their beginnings
}

// New makes a PLEG; nothing is started.
func New(cfg Config) *PLEG {
	return &PLEG{
		cfg:        cfg,
		changes:    make(chan types.UID),
		snapshots:  make(chan []Pod),
		news:       make(chan struct{}, 1),
		relistNow:  make(chan struct{}, 1),
		relistSoon: make(chan struct{}, 1),
		waiting:    make(map[types.UID]bool),
		owners:     make(map[string]types.UID),
	}
}

// Changes delivers the UIDs of pods to look at again. A UID that is not taken
// yet is delivered once, or twice where the pod changed while it was offered: it
// cannot be known then whether the consumer has taken it before the change.
func (p *PLEG) Changes() <-chan types.UID { return p.changes }

// Snapshots delivers what the runtime held at the last relist. A snapshot
// that is not taken is replaced by the next.
func (p *PLEG) Snapshots() <-chan []Pod { return p.snapshots }

// Run watches until ctx ends, and returns its error. Nothing that the runtime
// does or fails to do ends it.
func (p *PLEG) Run(ctx context.Context) error {
	p.mu.Lock()
	p.started = time.Now()
	p.mu.Unlock()
	var wg sync.WaitGroup
	wg.Go(func() { p.stream(ctx) })
	wg.Go(func() { p.check(ctx) })
	p.deliver(ctx)
	wg.Wait()
	return context.Cause(ctx)
}

// Heard says that the runtime has answered somebody else, which saves the next
// heartbeat.
func (p *PLEG) Heard() { p.note(nil) }

// Healthy fails when the runtime has said nothing for long. It asks nobody.
func (p *PLEG) Healthy(now time.Time) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	since := p.heard
	if since.IsZero() {
		since = p.started
	}
	if silent := now.Sub(since); silent > silenceLimit {
		if p.lastErr != nil {
			return fmt.Errorf("container runtime silent for %s: %w", silent.Round(time.Second), p.lastErr)
		}
		return fmt.Errorf("container runtime silent for %s", silent.Round(time.Second))
	}
	return nil
}

// deliver hands over changes and snapshots, and blocks on nothing else.
func (p *PLEG) deliver(ctx context.Context) {
	for {
		p.mu.Lock()
		var changes chan types.UID
		var snapshots chan []Pod
		var uid types.UID
		fresh := p.fresh
		if fresh != nil {
			snapshots = p.snapshots // before the changes, which may be of pods in it
		} else if len(p.pending) > 0 {
			changes, uid = p.changes, p.pending[0]
		}
		p.again = false
		p.mu.Unlock()
		select {
		case <-ctx.Done():
			return
		case <-p.news:
		case snapshots <- fresh:
			p.delivered(fresh)
		case changes <- uid:
			p.mu.Lock()
			p.pending = append(p.pending[:0], p.pending[1:]...)
			if p.again {
				p.pending = append(p.pending, uid)
			} else {
				delete(p.waiting, uid)
			}
			p.mu.Unlock()
		}
	}
}

// delivered drops the snapshot unless a newer one came meanwhile.
func (p *PLEG) delivered(snapshot []Pod) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.fresh) == len(snapshot) && (len(snapshot) == 0 || &p.fresh[0] == &snapshot[0]) {
		p.fresh = nil
	}
}

// changed queues a UID. The PLEG is locked.
func (p *PLEG) changed(uid types.UID) {
	if !p.waiting[uid] {
		p.waiting[uid] = true
		p.pending = append(p.pending, uid)
	} else if p.pending[0] == uid {
		p.again = true
	}
}

// note records that the runtime answered, or how it failed, and logs when
// the one turns into the other.
func (p *PLEG) note(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if failed := err != nil; failed != p.failing {
		p.failing = failed
		if failed {
			p.cfg.Log.Warn("container runtime does not answer", "error", err)
		} else {
			p.cfg.Log.Info("container runtime answers again")
		}
	}
	p.lastErr = err
	if err == nil {
		p.heard = time.Now()
	}
}

// fill puts a token into a one-slot channel unless there is one.
func fill(slot chan struct{}) {
	select {
	case slot <- struct{}{}:
	default:
	}
}

// pause waits for d or until ctx ends, and says whether ctx still lives.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

// jitter moves d by up to a tenth either way.
func jitter(d time.Duration) time.Duration { return d - d/10 + rand.N(d/5) }

// longer doubles a retry's wait up to retryMax.
func longer(d time.Duration) time.Duration { return min(2*d, retryMax) }
