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
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/tinylet/tinylet/agent/config/evictionapi"
	"github.com/tinylet/tinylet/agent/container"
	"github.com/tinylet/tinylet/agent/container/criconfig"
	"github.com/tinylet/tinylet/agent/container/image"
	"github.com/tinylet/tinylet/agent/metrics"
	"github.com/tinylet/tinylet/agent/pod"
	"github.com/tinylet/tinylet/agent/pod/event"
	"github.com/tinylet/tinylet/agent/podworker"
	"github.com/tinylet/tinylet/agent/podworker/admission"
	"github.com/tinylet/tinylet/agent/podworker/hook"
	"github.com/tinylet/tinylet/agent/podworker/plan"
	"github.com/tinylet/tinylet/agent/podworker/podstatus"
	"github.com/tinylet/tinylet/agent/podworker/probe"
	"github.com/tinylet/tinylet/agent/podworker/volume"
	"github.com/tinylet/tinylet/agent/resource/cpumanager"
	"github.com/tinylet/tinylet/agent/resource/oom"
	"github.com/tinylet/tinylet/agent/resource/resize"
	"github.com/tinylet/tinylet/agent/resource/resize/checkpoint"
	"github.com/tinylet/tinylet/agent/source/objects"
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
	// Objects answers what pods refer to.
	Objects objects.Reader
	// Services lists those of a namespace; nil where there is no API server.
	Services func(ctx context.Context, namespace string) ([]*v1.Service, error)
	Probes   *probe.Manager
	Hooks    *hook.Runner
	// Users gives pods users of their own, and takes them back.
	Users interface {
		Get(uid types.UID) (*runtimeapi.UserNamespace, error)
		Release(uid types.UID) error
	}
	// Cgroups is nil where pods get no cgroup of the agent's making.
	Cgroups Cgroups
	// Below is the runtime below CRI: RemoveLeft takes away what it still holds
	// of a pod of which CRI has stopped all, and counts it. nil is a runtime
	// that has nothing below CRI.
	Below interface {
		RemoveLeft(ctx context.Context, pod types.UID) (removed int, err error)
	}
	// Allocations is where it is written down what resized pods were
	// allocated; nil writes nothing.
	Allocations *checkpoint.Store
	// Resizable is what of the node forbids resizes.
	Resizable resize.Features
	// Ready says that all sources have told their pods: before that no resize
	// is decided. It must not block; nil is always.
	Ready func() bool
	// CPUs gives containers CPUs of their own; nil gives none.
	CPUs *cpumanager.Manager
	// OOM knows which containers were killed for want of memory; nil leaves that
	// to the runtime.
	OOM      *oom.Watcher
	Statuses *podstatus.Store
	Events   *event.Recorder
	// Node tells what configs need to know of the node. It may block on the
	// runtime and fail while that is away.
	Node func(ctx context.Context) (*criconfig.Node, error)
	// PeekNode is Node without name servers, and ok false while the runtime
	// has not told all of it; it asks nobody.
	PeekNode func() (n *criconfig.Node, ok bool)
	// AdmitNode is what pods are checked against before they run; nil, or
	// answering nil, admits all. It must not block.
	AdmitNode func() *admission.Node
	// ConfirmNode has AdmitNode's labels and taints read anew from the API
	// server, before a pod that it has sent here is refused for them: who
	// labels a node lets pods follow at once. nil is for a board alone.
	ConfirmNode func(ctx context.Context) error
	// ShuttingDown says that the node takes no pods any more, as it goes down;
	// it must not block. nil is that it never does.
	ShuttingDown func() bool
	// Under is which pressures the node is under, which keep some pods from
	// coming; it must not block. nil is that it never is.
	Under func() evictionapi.Conditions
	// Arrived is told of each pod, and each new version of one, that a source
	// wants, and of one that begins; it must not block. nil is nobody.
	Arrived func(*v1.Pod)
	// Handler is the runtime's handler for the pod's runtime class.
	Handler func(ctx context.Context, p *v1.Pod) (string, error)
	// RecursiveReadOnly says whether a handler of the runtime mounts so.
	RecursiveReadOnly func(handler string) bool
	// Wake has the pod's worker look again. It must not block.
	Wake    func(types.UID)
	HostIPs func() []string
	// LogLinks is the folder of links that log collectors follow.
	LogLinks   string
	MaxBackoff time.Duration
	// BootID is the kernel's; empty is not known.
	BootID string
	Log    *slog.Logger
}

// Syncer implements podworker.Syncer. It is safe for concurrent use on
// different pods.
type Syncer struct {
	Config
	now func() time.Time

	admission admitter
	resizes   resizes
	turns     turns
	groups    groups
	counted   counted

	mu    sync.Mutex
	facts map[types.UID]*facts
}

// facts are what is known of a pod beside its spec and the runtime. Only the
// pod's worker touches them once they are made.
type facts struct {
	// waiting says by container name why it could not be started.
	waiting map[string]podstatus.Waiting
	// rejected is why the pod never ran, failed why it ended early.
	rejected, failed *podstatus.Reason
	// disruption is set where the node ended the pod for its own sake.
	disruption *podstatus.Reason
	// confirmed says that the node was read anew for the pod.
	confirmed   bool
	terminating bool
	terminated  bool
	// kept says that the foreign volumes that stay were told of.
	kept bool
	// submitted is when a source first had the pod, zero for one that nobody
	// wants; startedAt is when the node took it on.
	submitted, startedAt time.Time
	// begun says that there was a sync, and pending that the last one saw the
	// pod before it ran.
	begun, pending bool
	// next is the wall time to which the last plan waits, due the same moment
	// on the monotonic clock.
	next, due time.Time
	// read is the clock when the last plan was made, and planned the wall time
	// that it was made for.
	read, planned time.Time
	// backoffs are the waits that had their event, by container name.
	backoffs map[string]time.Time
	// turn is held from the making of a sandbox to the start of what is in it.
	turn turn
	// seen is the pod when there was last nothing to do for it, and, once it is
	// stopped, how it ended; nil while that may have changed by our doing.
	seen *container.Observed
	// old are sandboxes of an earlier boot that are still to be stopped.
	old []string
	// handler is the runtime's that the pod's sandbox was asked of.
	handler string
	// actual is what the containers of a resized pod have, by ID, restarts
	// those that want a restart for the resize, with the message of its event,
	// resizing says that it is in progress, and freed that it has come to its
	// end and others are to be told.
	actual          map[string]resize.Actual
	restarts        map[string]string
	resizing, freed bool
	// slipped says that the pod had processes which the runtime had lost, and
	// how often its other leftovers are still tried to be taken away.
	slipped int
	// messages are the termination messages of exited containers, by ID.
	messages map[string]string

	// evicted is why the node has the pod fail. The Syncer's lock guards it.
	evicted *Eviction

	mu sync.Mutex
	// hooked are the containers, by ID, whose preStop hook was run.
	hooked map[string]struct{}
}

// New makes a Syncer; nothing is started.
func New(cfg Config) *Syncer {
	s := &Syncer{
		Config: cfg, admission: admitter{under: cfg.Under}, now: time.Now, facts: make(map[types.UID]*facts), turns: newTurns(),
		counted: counted{started: metrics.NewTiming(startBounds), resized: metrics.NewTimings(resizeBounds)},
	}
	s.resizes.record = cfg.Allocations
	s.admission.reserved = s.reserved
	return s
}

func (s *Syncer) factsOf(uid types.UID) *facts {
	s.mu.Lock()
	defer s.mu.Unlock()
	f := s.facts[uid]
	if f == nil {
		f = new(facts)
		s.facts[uid] = f
	}
	if f.startedAt.IsZero() {
		f.startedAt = s.now()
	}
	return f
}

// submit notes when a source first had the pod.
func (s *Syncer) submit(uid types.UID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.facts[uid] == nil {
		s.facts[uid] = &facts{submitted: s.now()}
	}
}

func (s *Syncer) dropFacts(uid types.UID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.facts, uid)
}

// Submitted implements podworker.Syncer: it judges whether the node takes the
// pod, in the order in which pods come, and shows it as pending until its
// worker has looked at it. What of the pod is a resize waits for its worker.
func (s *Syncer) Submitted(p *v1.Pod) {
	asked := p
	p, before := s.resizes.submit(p)
	s.countRequested(before, asked)
	s.admission.submit(p, s.AdmitNode())
	s.submit(p.UID)
	s.Statuses.Submit(p, s.first(p))
	if s.Arrived != nil {
		s.Arrived(p) // who is told lists the pods
	}
}

// first is a pod's status until somebody has looked at it: what the API server
// has of it, and else that of a new pod. A new one's would take containers for
// lost that run on.
func (s *Syncer) first(p *v1.Pod) v1.PodStatus {
	if !pod.IsStatic(p) && len(p.Status.ContainerStatuses) > 0 {
		return p.Status
	}
	return podstatus.Generate(podstatus.Input{Pod: p, Now: s.now(), HostIPs: s.HostIPs()})
}

// Removed implements podworker.Syncer: the pod's place is free for the next.
func (s *Syncer) Removed(ref pod.Ref) {
	s.resizes.remove(ref.UID)
	s.placeFree(s.admission.remove(ref.UID), podsRemoved)
}

// Adopted implements podworker.Syncer: what runs has its place on the node.
func (s *Syncer) Adopted(running []pod.Ref) { s.admission.adopt(running, s.AdmitNode()) }

// maxRounds bounds one sync: a pod in which more has to be done after so many
// rounds waits for its next turn.
const maxRounds = 16

// Sync implements podworker.Syncer.
func (s *Syncer) Sync(ctx context.Context, p *v1.Pod) (podworker.Result, error) {
	f := s.factsOf(p.UID)
	if s.Arrived != nil && !f.begun {
		s.Arrived(p) // it may have come while an earlier life of it ended
	}
	s.countBegin(f)
	f.seen = nil
	defer f.turn.leave()
	s.admission.begin(p.UID)
	s.decideResizes(p.UID)
	p = s.resizes.allocated(p)
	s.admission.resize(p) // a version that came during a decision may have missed it
	var resized resizing
	var o *container.Observed
	for range maxRounds {
		if o == nil {
			var err error
			if o, err = container.Observe(ctx, s.Runtime, p.UID); err != nil {
				return podworker.Result{}, err
			}
		}
		if err := s.confirm(ctx, p, f); err != nil {
			return podworker.Result{}, err
		}
		if result, refused := s.judge(ctx, p, o, f); refused {
			return result, nil
		}
		s.Probes.Observe(p, o)
		if s.evicted(p, f) {
			s.report(ctx, p, o, f)
			return podworker.Result{Done: true}, nil
		}
		if err := resized.look(ctx, s, p, o, f); err != nil {
			return podworker.Result{}, err
		}
		actions := s.planFor(p, o, f)
		if result, refused, err := s.allocate(ctx, p, o, &actions, f); refused || err != nil {
			return result, err
		}
		f.learn(&actions)
		s.tellBackoffs(p, &actions, f)
		s.report(ctx, p, o, f)
		if actions.Done {
			return podworker.Result{Done: true}, nil
		}
		if !actions.CreateSandbox && len(actions.Start) == 0 {
			f.turn.leave()
		}
		if resized.due(actions.KillPod, actions.CreateSandbox) {
			if err := resized.carryOut(ctx, s, p); err == nil {
				o = nil
				continue
			}
			s.report(ctx, p, o, f)
		}
		if actions.Idle() {
			return s.idle(ctx, p, o, f, &resized, actions.Next)
		}
		seen, retry, err := s.act(ctx, p, o, &actions, f)
		if err != nil || !retry.IsZero() {
			// What else the plan waits for, such as another container's
			// backoff, may be due before the retry.
			if due := f.schedule(actions.Next); !due.IsZero() {
				retry = sooner(retry, due)
			}
			return s.leave(ctx, p, f, retry, err)
		}
		o = seen
	}
	return podworker.Result{Next: s.now().Add(time.Second)}, nil
}

// idle ends a sync in which nothing more is to be done.
func (s *Syncer) idle(ctx context.Context, p *v1.Pod, o *container.Observed, f *facts, resized *resizing, next time.Time) (podworker.Result, error) {
	if err := s.stopOld(ctx, f); err != nil {
		return podworker.Result{}, err
	}
	if resized.err != nil && ctx.Err() != nil { // broken off
		return podworker.Result{}, resized.err
	}
	f.seen = o
	next = f.schedule(next)
	if look := s.refresh(ctx, p, o); !look.IsZero() {
		next = sooner(next, look)
	}
	if look := resized.next(s, p.UID); !look.IsZero() {
		next = sooner(next, look)
	}
	return podworker.Result{Next: next}, nil
}

// planFor decides what the pod needs next.
func (s *Syncer) planFor(p *v1.Pod, o *container.Observed, f *facts) plan.Actions {
	return plan.Sync(plan.Input{
		Pod: p, Observed: o, Now: f.clock(s.now()), StartedAt: f.startedAt,
		Hash: criconfig.Hash, Probes: s.verdicts(p.UID), MaxBackoff: s.MaxBackoff,
		Resized: f.restarts, BootID: s.BootID,
	})
}

// leave shows what could not be done before the sync ends.
func (s *Syncer) leave(ctx context.Context, p *v1.Pod, f *facts, retry time.Time, err error) (podworker.Result, error) {
	o, observeErr := container.Observe(ctx, s.Runtime, p.UID)
	if observeErr == nil {
		s.report(ctx, p, o, f)
	}
	return podworker.Result{Next: retry}, err
}

// learn keeps what the plan says and forgets why containers waited that are
// not to be started any more.
func (f *facts) learn(a *plan.Actions) {
	if a.FailReason != "" {
		f.failed = &podstatus.Reason{Reason: a.FailReason, Message: a.FailMessage}
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
		f.waiting = make(map[string]podstatus.Waiting)
	}
	f.waiting[name] = podstatus.Waiting{Reason: reason, Message: message}
}

// report generates the status and stores it.
func (s *Syncer) report(ctx context.Context, p *v1.Pod, o *container.Observed, f *facts) {
	in := podstatus.Input{
		Pod: p, Observed: s.OOM.Judge(p, o), Now: s.now(), Waiting: f.waiting, Rejected: f.rejected, Failed: f.failed,
		Terminating: f.terminating, Terminated: f.terminated, HostIPs: s.HostIPs(), Messages: f.messagesOf(ctx, p, o),
		Probes: s.findings(p.UID), RecursiveReadOnly: s.RecursiveReadOnly(f.handler), Disruption: f.disruption,
		Actual: f.actual, PodActual: s.podActual(p), Resize: s.resizes.conditions(p.UID),
	}
	if _, st, ok := s.Statuses.Get(p.UID); ok {
		in.Previous = st
	}
	st := podstatus.Generate(in)
	s.countStart(f, st.Phase)
	s.Statuses.Set(p, st, sandboxOf(o))
	if f.freed {
		f.freed = false
		s.roomFreed(podResized)
	}
}

// sandboxOf is the newest sandbox, if it is ready.
func sandboxOf(o *container.Observed) podstatus.Sandbox {
	newest := o.Sandbox()
	if newest == nil || !newest.Ready {
		return podstatus.Sandbox{}
	}
	return podstatus.Sandbox{ID: newest.ID, Since: newest.CreatedAt, HostNetwork: newest.HostNetwork}
}

// inContainer adds which of the pod's containers an error is about. What was
// attempted the driver has said; the pod is in the log's keys.
func inContainer(name string, err error) error {
	return fmt.Errorf("container %s: %w", name, err)
}
