// Package podsync does the work on one pod: observe what the runtime holds,
// let package plan decide, act, report the status, and look again until there
// is nothing to do. It is what the pod workers call.
//
// It keeps almost nothing: why containers wait and how a pod failed, which
// the runtime does not know. Everything else is read anew in each sync, so
// that an agent killed between any two steps goes on from what it finds.
package podsync

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tinylet/tinylet/agent/admit"
	"github.com/tinylet/tinylet/agent/container"
	"github.com/tinylet/tinylet/agent/criconfig"
	"github.com/tinylet/tinylet/agent/event"
	"github.com/tinylet/tinylet/agent/image"
	"github.com/tinylet/tinylet/agent/plan"
	"github.com/tinylet/tinylet/agent/pod"
	"github.com/tinylet/tinylet/agent/status"
	"github.com/tinylet/tinylet/agent/volume"
	"github.com/tinylet/tinylet/agent/worker"
	"github.com/tinylet/tinylet/cgroups"
)

// Config is what a Syncer works with. All fields are required but those that
// say otherwise.
type Config struct {
	Runtime interface {
		container.Sandboxes
		container.Containers
		container.Images
	}
	Images  *image.Puller
	Volumes *volume.Volumes
	// Cgroups is nil where pods get no cgroup of the agent's making.
	Cgroups  *cgroups.Tree
	Statuses *status.Store
	Events   *event.Recorder
	// Node tells what configs need to know of the node. It may block on the
	// runtime and fail while that is away.
	Node    func(ctx context.Context) (*criconfig.Node, error)
	HostIPs func() []string
	// LogLinks is the folder of links that log collectors follow.
	LogLinks   string
	MaxBackoff time.Duration
	Log        *slog.Logger
}

// Syncer implements worker.Syncer. It is safe for concurrent use on
// different pods.
type Syncer struct {
	Config
	now func() time.Time

	mu    sync.Mutex
	facts map[types.UID]*facts
}

// facts are what is known of a pod beside its spec and the runtime. Only the
// pod's worker touches them once they are made.
type facts struct {
	// waiting says by container name why it could not be started.
	waiting map[string]status.Waiting
	// rejected is why the pod never ran, failed why it ended early.
	rejected, failed *status.Reason
	terminating      bool
	terminated       bool
	// startedAt is when the node took the pod on.
	startedAt time.Time
	// next is the wall time to which the last plan waits, due the same moment
	// on the monotonic clock.
	next, due time.Time
	// backoffs are the waits that had their event, by container name.
	backoffs map[string]time.Time
}

// New makes a Syncer; nothing is started.
func New(cfg Config) *Syncer {
	return &Syncer{Config: cfg, now: time.Now, facts: make(map[types.UID]*facts)}
}

func (s *Syncer) factsOf(uid types.UID) *facts {
	s.mu.Lock()
	defer s.mu.Unlock()
	f := s.facts[uid]
	if f == nil {
		f = &facts{startedAt: s.now()}
		s.facts[uid] = f
	}
	return f
}

func (s *Syncer) dropFacts(uid types.UID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.facts, uid)
}

// Submitted shows the pod as pending until its worker has looked at it.
func (s *Syncer) Submitted(p *v1.Pod) {
	if _, st, ok := s.Statuses.Get(p.UID); ok {
		s.Statuses.Set(p, *st)
		return
	}
	s.Statuses.Set(p, status.Generate(status.Input{Pod: p, Now: s.now(), HostIPs: s.HostIPs()}))
}

// maxRounds bounds one sync: a pod in which more has to be done after so many
// rounds waits for its next turn.
const maxRounds = 16

// Sync implements worker.Syncer.
func (s *Syncer) Sync(ctx context.Context, p *v1.Pod) (worker.Result, error) {
	f := s.factsOf(p.UID)
	for range maxRounds {
		o, err := container.Observe(ctx, s.Runtime, p.UID)
		if err != nil {
			return worker.Result{}, err
		}
		if refused, done := s.refuse(p, o, f); refused {
			return worker.Result{Done: done}, nil
		}
		actions := plan.Sync(plan.Input{
			Pod: p, Observed: o, Now: f.clock(s.now()), StartedAt: f.startedAt,
			Hash: criconfig.Hash, MaxBackoff: s.MaxBackoff,
		})
		f.learn(&actions)
		s.tellBackoffs(p, &actions, f)
		s.report(p, o, f)
		if actions.Done || actions.Idle() {
			return worker.Result{Next: f.schedule(s.now(), actions.Next), Done: actions.Done}, nil
		}
		retry, err := s.act(ctx, p, o, &actions, f)
		if err != nil || !retry.IsZero() {
			// What else the plan waits for, such as another container's
			// backoff, may be due before the retry.
			if !actions.Next.IsZero() {
				retry = sooner(retry, actions.Next)
			}
			return s.leave(ctx, p, f, f.schedule(s.now(), retry), err)
		}
	}
	return worker.Result{Next: s.now().Add(time.Second)}, nil
}

// leave shows what could not be done before the sync ends.
func (s *Syncer) leave(ctx context.Context, p *v1.Pod, f *facts, retry time.Time, err error) (worker.Result, error) {
	o, observeErr := container.Observe(ctx, s.Runtime, p.UID)
	if observeErr == nil {
		s.report(p, o, f)
	}
	return worker.Result{Next: retry}, err
}

// refuse rejects a pod that asks for what is not built, for good unless it
// runs: what another agent started is left as it is, and only watched.
func (s *Syncer) refuse(p *v1.Pod, o *container.Observed, f *facts) (refused, done bool) {
	problems := admit.Unsupported(p)
	if len(problems) == 0 {
		return false, false
	}
	message := problems.ToAggregate().Error()
	if o.Running() {
		s.Events.Warning(pod.RefOf(p), reasonUnsupported, "left running as another agent started it: "+message)
		s.report(p, o, f)
		return true, false
	}
	f.rejected = &status.Reason{Reason: reasonUnsupported, Message: message}
	s.Events.Warning(pod.RefOf(p), reasonUnsupported, message)
	s.report(p, o, f)
	return true, true
}

// reasonUnsupported is the kubelet's word for a pod that needs what this node
// does not have (pkg/kubelet/lifecycle/handlers.go).
const reasonUnsupported = "PodFeatureUnsupported"

// learn keeps what the plan says and forgets why containers waited that are
// not to be started any more.
func (f *facts) learn(a *plan.Actions) {
	if a.FailReason != "" {
		f.failed = &status.Reason{Reason: a.FailReason, Message: a.FailMessage}
	}
	starts := make(map[string]bool, len(a.Start))
	for i := range a.Start {
		starts[a.Start[i].Container.Name] = true
	}
	for name := range f.waiting {
		if !starts[name] {
			delete(f.waiting, name)
		}
	}
	for name, w := range a.Waiting {
		f.wait(name, w.Reason, w.Message)
	}
}

// wait notes why a container is not started.
func (f *facts) wait(name, reason, message string) {
	if f.waiting == nil {
		f.waiting = make(map[string]status.Waiting)
	}
	f.waiting[name] = status.Waiting{Reason: reason, Message: message}
}

// report generates the status and stores it.
func (s *Syncer) report(p *v1.Pod, o *container.Observed, f *facts) {
	in := status.Input{
		Pod: p, Observed: o, Now: s.now(), Waiting: f.waiting, Rejected: f.rejected, Failed: f.failed,
		Terminating: f.terminating, Terminated: f.terminated, HostIPs: s.HostIPs(), Messages: messagesOf(p, o),
	}
	if _, st, ok := s.Statuses.Get(p.UID); ok {
		in.Previous = st
	}
	s.Statuses.Set(p, status.Generate(in))
}

// inContainer adds which of the pod's containers an error is about. What was
// attempted the driver has said; the pod is in the log's keys.
func inContainer(name string, err error) error {
	return fmt.Errorf("container %s: %w", name, err)
}
