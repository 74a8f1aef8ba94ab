// Package podsync syncs, terminates and removes one pod. A sync observes the
// runtime's state, computes the actions with package plan, executes them and reports
// the status. It repeats this until no action is left. The pod workers call it.
//
// The state in memory is what the runtime does not report, such as why a container
// waits and why a pod failed. Each sync reads everything else again. So an agent that
// is killed between two steps continues from what it observes.
package podsync

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/tinylet/tinylet/agent/config/evictionapi"
	"github.com/tinylet/tinylet/agent/container"
	"github.com/tinylet/tinylet/agent/container/criconfig"
	"github.com/tinylet/tinylet/agent/container/image"
	"github.com/tinylet/tinylet/agent/metrics"
	"github.com/tinylet/tinylet/agent/node/nodeinfo"
	"github.com/tinylet/tinylet/agent/pod"
	"github.com/tinylet/tinylet/agent/pod/event"
	"github.com/tinylet/tinylet/agent/podworker"
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
	"github.com/tinylet/tinylet/agent/wait"
)

// Config is the configuration of a Syncer. All fields are required unless their
// comment gives a meaning to nil or the zero value.
type Config struct {
	Runtime interface {
		container.Sandboxes
		container.Containers
		container.Images
	}
	Images  *image.Puller
	Volumes *volume.Manager
	// Objects returns the objects that pods refer to.
	Objects objects.Reader
	// Services lists the Services of a namespace; nil without an API server.
	Services func(ctx context.Context, namespace string) ([]*v1.Service, error)
	Probes   *probe.Manager
	Hooks    *hook.Runner
	// NetworkProblem returns why the runtime cannot set up the network of a pod, "" if it
	// can or if that is unknown. Wake is called for the pod when that changes. It must
	// not block. nil means no problem.
	NetworkProblem func() string
	// Users allocates and releases the user namespaces of pods.
	Users interface {
		Get(uid types.UID) (*runtimeapi.UserNamespace, error)
		Release(uid types.UID) error
	}
	// Cgroups is nil where the agent makes no cgroups for pods.
	Cgroups Cgroups
	// NativeAPI is containerd's native API. RemoveOrphans removes what containerd
	// still has of a pod whose containers CRI has stopped, and counts the
	// removed containers. nil means that the runtime has no such API.
	NativeAPI interface {
		RemoveOrphans(ctx context.Context, pod types.UID) (removed int, err error)
	}
	// Allocations persists the allocations of resized pods.
	Allocations *checkpoint.Store
	// Resizable are the settings of the node that forbid resizes.
	Resizable resize.Features
	// Ready reports whether all sources have reported their pods. No resize is
	// decided before that. It must not block.
	Ready func() bool
	// CPUs allocates exclusive CPUs to containers; nil allocates none.
	CPUs *cpumanager.Manager
	// OOM reports which containers were OOM-killed; nil leaves that to the
	// runtime.
	OOM      *oom.Watcher
	Statuses *podstatus.Store
	Events   *event.Recorder
	// Node returns the settings of the node that configs need. It may block on
	// the runtime, and fail while the runtime is unavailable.
	Node func(ctx context.Context) (*criconfig.Node, error)
	// PeekNode is Node without name servers and without calls. ok is false
	// while the runtime has not reported everything that it needs.
	PeekNode func() (n *criconfig.Node, ok bool)
	// AdmitNode returns the node against which pods are checked before they
	// run. A nil result admits all new pods. It must not block.
	AdmitNode func() *nodeinfo.Admission
	// ConfirmNode reads the node's labels and taints for AdmitNode from the API
	// server. It is called before a pod from the API server is rejected for
	// them, since a label may be set right before a pod that needs it is bound.
	// nil is for a standalone node.
	ConfirmNode func(ctx context.Context) error
	// ShuttingDown reports whether the node is shutting down and no longer admits
	// pods. It must not block.
	ShuttingDown func() bool
	// Pressure returns the node's pressure conditions, which keep some pods from
	// being admitted. It must not block.
	Pressure func() evictionapi.Conditions
	// PodAdded is called for each version of a pod that a source has, and before the
	// first sync of a pod. It must not block.
	PodAdded func(*v1.Pod)
	// Handler returns the runtime handler for the pod's runtime class.
	Handler func(ctx context.Context, p *v1.Pod) (string, error)
	// RecursiveReadOnly reports whether a runtime handler supports recursive
	// read-only mounts.
	RecursiveReadOnly func(handler string) bool
	// Wake triggers a sync by the pod's worker. It must not block.
	Wake    func(types.UID)
	HostIPs func() []string
	// LogLinks is the directory of links that log collectors follow.
	LogLinks   string
	MaxBackoff time.Duration
	// BootID is the kernel's boot ID; empty means unknown.
	BootID string
	Log    *slog.Logger
}

// Syncer implements podworker.Syncer. It is safe for concurrent use on
// different pods.
type Syncer struct {
	Config
	now func() time.Time

	admission  admitter
	resizes    resizes
	startSlots wait.Slots
	groups     parentCgroups
	counted    counted

	mu     sync.Mutex
	states map[types.UID]*syncState
}

// syncState is the state of one pod in addition to its spec and the runtime's state.
// Once it is created, only the pod's worker accesses it, except for the last two
// fields.
type syncState struct {
	// waiting has by container name the reason why the container could not be
	// started.
	waiting map[string]podstatus.Reason
	// rejected is why the pod was not admitted, failed why it ended early.
	rejected, failed *podstatus.Reason
	// disruption is set if the node ended the pod for a reason of the node.
	disruption *podstatus.Reason
	// confirmed means that ConfirmNode was called for the pod.
	confirmed   bool
	terminating bool
	terminated  bool
	// foreignReported means that the event for remaining foreign volumes was emitted.
	foreignReported bool
	// submitted is when a source first had the pod, zero for a pod that no
	// source has. startedAt is when the worker first acted on the pod, or when the
	// pod was evicted if that was earlier.
	submitted, startedAt time.Time
	// begun means that there was a sync. pending means that the last status was
	// Pending.
	begun, pending bool
	// next is the wall time until which the last plan waits. nextMonotonic is the
	// same moment on the monotonic clock.
	next, nextMonotonic time.Time
	// clockRead is the clock at the last plan. planned is the wall time that the
	// plan was made for.
	clockRead, planned time.Time
	// backoffs has by container name the end of the backoff whose event was emitted.
	backoffs map[string]time.Time
	// slot is held from the creation of a sandbox to the start of its
	// containers.
	slot startSlot
	// lastObserved is the observation of the last sync that had nothing to do, or of
	// the stopped pod. It is nil while an action of the worker may have changed the
	// pod.
	lastObserved *container.Observed
	// stoppedSandboxes are the sandboxes of an earlier boot that were stopped.
	stoppedSandboxes []string
	// handler is the runtime handler of the pod's sandbox.
	handler string
	// actual has the actual resources of the containers of a resized pod, by
	// ID. restarts has the containers that need a restart for the resize, by ID, with
	// the message of the event. resizing means that the resize is in progress.
	// resizeCompleted means that it has completed and that deferred resizes have to be
	// decided again.
	actual                    map[string]resize.Actual
	restarts                  map[string]string
	resizing, resizeCompleted bool
	// cleanupAttempts is the number of remaining attempts to remove containers that the
	// runtime leaked. It is not zero after the pod had orphaned processes.
	cleanupAttempts int
	// messages are the termination messages of exited containers, by ID.
	messages map[string]string

	evicted atomic.Pointer[Eviction]
	// preStopRun has the IDs of the containers whose preStop hook has begun and was not
	// interrupted.
	preStopRun sync.Map
}

// New returns a Syncer. It starts nothing.
func New(cfg Config) *Syncer {
	s := &Syncer{
		Config: cfg, admission: admitter{pressure: cfg.Pressure}, now: time.Now, states: make(map[types.UID]*syncState), startSlots: newStartSlots(),
		groups:  parentCgroups{written: make(map[string]writtenCgroup)},
		counted: counted{started: metrics.NewTiming(startBounds), resized: metrics.NewTimingVec(resizeBounds)},
	}
	s.resizes.record = cfg.Allocations
	s.admission.reserved = s.reserved
	return s
}

func (s *Syncer) stateOf(uid types.UID) *syncState {
	s.mu.Lock()
	defer s.mu.Unlock()
	f := s.states[uid]
	if f == nil {
		f = new(syncState)
		s.states[uid] = f
	}
	if f.startedAt.IsZero() {
		f.startedAt = s.now()
	}
	return f
}

// existing is stateOf for a pod that a source has or that is not forgotten yet, and
// returns nil for any other UID: nothing would drop its state.
func (s *Syncer) existing(uid types.UID) *syncState {
	if _, _, desired := s.admission.result(uid); desired {
		return s.stateOf(uid)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.states[uid]
}

// submit records when a source first had the pod.
func (s *Syncer) submit(uid types.UID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.states[uid] == nil {
		s.states[uid] = &syncState{submitted: s.now()}
	}
}

func (s *Syncer) dropState(uid types.UID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.states, uid)
}

// OnPodAdded implements podworker.Syncer. It decides whether the node admits the
// pod, in the order in which pods are submitted, and stores the initial status
// until the pod's worker has observed the pod. The worker decides resizes.
func (s *Syncer) OnPodAdded(p *v1.Pod) {
	asked := p
	p, before := s.resizes.submit(p)
	s.countRequested(before, asked)
	s.admission.submit(p, s.AdmitNode())
	s.submit(p.UID)
	s.Statuses.SetPod(p, s.initialStatus(p))
	s.PodAdded(p) // after the store has the pod, since the callee lists pods
}

// initialStatus returns the pod's status until the pod is observed: the API server's
// status if it has container statuses, else that of a new pod. The status of a new pod
// would report running containers as lost.
func (s *Syncer) initialStatus(p *v1.Pod) v1.PodStatus {
	if !pod.IsStatic(p) && len(p.Status.ContainerStatuses) > 0 {
		return p.Status
	}
	return podstatus.Generate(podstatus.Input{Pod: p, Now: s.now(), HostIPs: s.HostIPs()})
}

// OnPodRemoved implements podworker.Syncer. The pod no longer counts against the
// node's resources, although it may still run.
func (s *Syncer) OnPodRemoved(ref pod.Ref) {
	s.resizes.remove(ref.UID)
	s.resourcesFreed(s.admission.remove(ref.UID), podsRemoved)
}

// OnPodsDiscovered implements podworker.Syncer. It admits the running pods.
func (s *Syncer) OnPodsDiscovered(running []pod.Ref) { s.admission.adopt(running, s.AdmitNode()) }

// maxRounds is the maximum number of plans in one sync. A pod that needs more
// continues in its next sync, after a second.
const maxRounds = 16

// Sync implements podworker.Syncer.
func (s *Syncer) Sync(ctx context.Context, p *v1.Pod) (podworker.Result, error) {
	f := s.stateOf(p.UID)
	if !f.begun {
		s.PodAdded(p) // its submission may have come while an earlier pod of the UID ended
	}
	s.countBegin(f)
	f.lastObserved = nil
	defer f.slot.release()
	s.admission.begin(p.UID)
	s.decideResizes(p.UID)
	p = s.resizes.allocated(p)
	s.admission.resize(p) // a version submitted during a decision may lack the result
	var resized resizing
	var o *container.Observed
	for range maxRounds {
		if o == nil {
			var err error
			if o, err = container.Observe(ctx, s.Runtime, p.UID); err != nil {
				return podworker.Result{}, err
			}
		}
		if err := s.confirmRejection(ctx, p, f); err != nil {
			return podworker.Result{}, err
		}
		if result, refused := s.admit(ctx, p, o, f); refused {
			return result, nil
		}
		s.Probes.Observe(p, o)
		if s.evicted(p, f) {
			s.report(ctx, p, o, f)
			return podworker.Result{Done: true}, nil
		}
		if err := resized.compare(ctx, s, p, o, f); err != nil {
			return podworker.Result{}, err
		}
		actions := s.planFor(p, o, f)
		if result, refused, err := s.allocate(ctx, p, o, &actions, f); refused || err != nil {
			return result, err
		}
		f.recordPlan(&actions)
		s.emitBackOffs(p, &actions, f)
		s.report(ctx, p, o, f)
		if actions.Done {
			return podworker.Result{Done: true}, nil
		}
		if !actions.CreateSandbox && len(actions.Start) == 0 {
			f.slot.release()
		}
		if resized.due(actions.KillPod, actions.CreateSandbox) {
			if err := resized.actuate(ctx, s, p); err == nil {
				o = nil
				continue
			}
			s.report(ctx, p, o, f)
		}
		if actions.Idle() {
			return s.finishSync(ctx, p, o, f, &resized, actions.Next)
		}
		seen, retry, err := s.act(ctx, p, o, &actions, f)
		if err != nil || !retry.IsZero() {
			// The plan may also wait for something else, such as another
			// container's backoff, which may be due before the retry.
			return s.reportFailure(ctx, p, f, sooner(retry, f.schedule(actions.Next)), err)
		}
		o = seen
	}
	return podworker.Result{Next: s.now().Add(time.Second)}, nil
}

// finishSync ends a sync without remaining actions. It stops sandboxes of an earlier
// boot and refreshes the volumes.
func (s *Syncer) finishSync(ctx context.Context, p *v1.Pod, o *container.Observed, f *syncState, resized *resizing, next time.Time) (podworker.Result, error) {
	if err := s.stopOldSandboxes(ctx, o, f); err != nil {
		return podworker.Result{}, err
	}
	if resized.err != nil && ctx.Err() != nil { // interrupted
		return podworker.Result{}, resized.err
	}
	f.lastObserved = o
	next = sooner(f.schedule(next), s.refresh(ctx, p, o))
	return podworker.Result{Next: sooner(next, resized.next(s, p.UID))}, nil
}

func (s *Syncer) planFor(p *v1.Pod, o *container.Observed, f *syncState) plan.Actions {
	return plan.Sync(plan.Input{
		Pod: p, Observed: o, Now: f.clock(s.now()), StartedAt: f.startedAt,
		Hash: criconfig.Hash, Probes: s.Probes.Results(p.UID), MaxBackoff: s.MaxBackoff,
		Resized: f.restarts, BootID: s.BootID,
	})
}

// reportFailure observes the pod again and reports its status, after act failed or has
// to be retried. It returns err.
func (s *Syncer) reportFailure(ctx context.Context, p *v1.Pod, f *syncState, retry time.Time, err error) (podworker.Result, error) {
	o, observeErr := container.Observe(ctx, s.Runtime, p.UID)
	if observeErr == nil {
		s.report(ctx, p, o, f)
	}
	return podworker.Result{Next: retry}, err
}

// recordPlan stores the results of a plan. It drops the wait reasons of containers
// that are no longer to be started.
func (f *syncState) recordPlan(a *plan.Actions) {
	if a.FailReason != "" {
		f.failed = &podstatus.Reason{Reason: a.FailReason, Message: a.FailMessage}
	}
	maps.DeleteFunc(f.waiting, func(name string, _ podstatus.Reason) bool {
		return !slices.ContainsFunc(a.Start, func(start plan.Start) bool { return start.Container.Name == name })
	})
	for name, w := range a.Waiting {
		f.wait(name, w.Reason, w.Message)
	}
}

func (f *syncState) wait(name, reason, message string) {
	if f.waiting == nil {
		f.waiting = make(map[string]podstatus.Reason)
	}
	f.waiting[name] = podstatus.Reason{Reason: reason, Message: message}
}

// report generates the status and stores it.
func (s *Syncer) report(ctx context.Context, p *v1.Pod, o *container.Observed, f *syncState) {
	in := podstatus.Input{
		Pod: p, Observed: s.OOM.SetReasons(p, o), Now: s.now(), Waiting: f.waiting, Rejected: f.rejected, Failed: f.failed,
		Terminating: f.terminating, Terminated: f.terminated, HostIPs: s.HostIPs(), Messages: f.messagesOf(ctx, p, o),
		Probes: s.Probes.Results(p.UID), RecursiveReadOnly: s.RecursiveReadOnly(f.handler), Disruption: f.disruption,
		Actual: f.actual, PodActual: s.podActual(p), Resize: s.resizes.state(p.UID).conditions,
	}
	if _, st, ok := s.Statuses.Get(p.UID); ok {
		in.Previous = st
	}
	st := podstatus.Generate(in)
	s.countStart(f, st.Phase)
	s.Statuses.Set(p, st, sandboxOf(o))
	if f.resizeCompleted {
		f.resizeCompleted = false
		s.roomFreed(podResized)
	}
}

// sandboxOf returns the newest sandbox if it is ready, and else the zero
// Sandbox.
func sandboxOf(o *container.Observed) pod.Sandbox {
	newest := o.Sandbox()
	if newest == nil || !newest.Ready {
		return pod.Sandbox{}
	}
	return pod.Sandbox{ID: newest.ID, Since: newest.CreatedAt, HostNetwork: newest.HostNetwork}
}

// inContainer adds the container's name to an error. The driver's error already
// names the operation, and the log's attributes name the pod.
func inContainer(name string, err error) error {
	return fmt.Errorf("container %s: %w", name, err)
}
