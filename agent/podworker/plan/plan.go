// Package plan decides what a pod needs next. Sync is a pure function of the
// pod's spec, the runtime's state and the time. It has no effects and keeps no
// state, so an agent that died between any two actions continues from what it
// observes. The rules are those of the kubelet's computePodActions
// (pkg/kubelet/kuberuntime/kuberuntime_manager.go), with the following
// differences. They guarantee that a restart of the agent neither restarts nor
// duplicates a container:
//
//   - A container that was created and never started is started if its hash
//     still matches. Otherwise it is removed and recreated with the same restart
//     count. The kubelet creates a second one and leaves the first to its GC.
//   - Init containers count only in the sandbox in which they ran, so none has
//     to be purged when the sandbox is recreated.
//   - A second ready sandbox is stopped and removed. The kubelet would restart
//     the whole pod.
//   - A pod that never restarts gets a new sandbox as long as one of its
//     containers has not run. The kubelet leaves it pending.
//   - The crash loop backoff is stored with the dead container rather than in
//     memory. A container that was lost with its node does not count as a crash.
//     Neither does an init container that succeeded and runs again.
//   - The restart of all containers (KEP-5532) is complete when all old
//     containers are removed. The container that triggered it is removed last,
//     so the pod's status needs no mark that the restart is in progress. The
//     restart waits until that container is 10 s old, to limit the load on a
//     board.
package plan

import (
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/tinylet/tinylet/agent/container"
	"github.com/tinylet/tinylet/agent/pod"
)

// Input is all that Sync reads. Sync does not change it.
type Input struct {
	Pod      *v1.Pod
	Observed *container.Observed // nil means that the runtime has nothing of the pod
	Now      time.Time

	// StartedAt is when the agent first saw the pod; zero means unknown. The
	// pod's active deadline counts from the oldest of this,
	// pod.status.startTime and the creation of the observed sandboxes and
	// containers.
	StartedAt time.Time

	// Hash computes the container hash, to compare with the one that a
	// container was created with. Nil disables the comparison. It is called for
	// each container that runs or waits to be started, so it should be cheap.
	Hash func(*v1.Container) string

	// Probes are the probe results of running containers, by container ID. A
	// container without an entry has not failed, and has started unless it has
	// a startup probe.
	Probes map[string]pod.ProbeResult

	// Resized are the running containers, by ID, that need a restart for a
	// resize, with the message of the event.
	Resized map[string]string

	// BootID is the kernel's boot ID; empty means unknown.
	BootID string

	// MaxBackoff is the maximum crash loop backoff; zero means 300 s.
	MaxBackoff time.Duration
}

// Actions is what to do next, in this order:
//
//  1. KillPod with the result of Terminate, else Kill (all at once) and StopSandboxes.
//  2. Remove, then RemoveSandboxes.
//  3. CreateSandbox.
//  4. Start, in order.
//
// The executor stops at the first step that fails, and observes the pod again.
// In particular it starts nothing after a kill that failed. It also observes
// the pod again after it acted: Sync plans the next step only from the
// runtime's state.
type Actions struct {
	// KillPod stops all containers and all sandboxes, because the sandbox has
	// to be recreated or because the pod is done.
	KillPod bool
	// CreateSandbox creates a new sandbox, to which Start applies.
	CreateSandbox bool
	// Attempt is the attempt number of the sandbox to which Start applies, new
	// or not.
	Attempt uint32
	// SandboxID is the sandbox to start containers in unless CreateSandbox is
	// set; empty if there is none.
	SandboxID string

	Kill  []Kill
	Start []Start

	// StopSandboxes are ready sandboxes other than the current one.
	StopSandboxes []string
	// Remove are the IDs of exited or never started containers that are no longer
	// needed as evidence. Of each name the current container and the newest other
	// exited one stay, unless Reset is set. They are removed in this order, and a
	// failure ends the removal.
	Remove []string
	// Reset means that Remove has all remaining init and main containers of the pod,
	// which is about to start from the beginning. Their logs stay, and determine the
	// numbers of the next logs.
	Reset bool
	// RemoveSandboxes are older sandboxes without containers that have to be
	// kept. They are stopped before they are removed.
	RemoveSandboxes []string

	// Waiting has by container name the reason why a container is not started
	// yet.
	Waiting map[string]Waiting

	// Next is the time of the next sync even without an event; zero means
	// never. The caller waits for it on the monotonic clock and then calls Sync
	// with a Now that is not before it, so that a clock that is set back
	// meanwhile does not prolong the wait.
	Next time.Time

	// Done means that the pod has finished: nothing will be started, and KillPod is
	// set if something still runs.
	Done bool
	// FailReason and FailMessage are set when the pod has failed for a reason
	// that its containers do not show.
	FailReason, FailMessage string
}

// Idle reports whether there is nothing to do now.
func (a *Actions) Idle() bool {
	return !a.KillPod && !a.CreateSandbox && len(a.Kill) == 0 && len(a.Start) == 0 &&
		len(a.StopSandboxes) == 0 && len(a.Remove) == 0 && len(a.RemoveSandboxes) == 0
}

// ReasonKilling is the event reason of a Kill.
const ReasonKilling = "Killing"

// Kill is one container to stop.
type Kill struct {
	ID, Name string
	Message  string // of the event, whose reason is ReasonKilling
	// Grace is the grace period that the pod or the probe requests; the caller
	// may shorten it. It covers the hook, the earlier stages of a Termination and
	// the stop signal together. With a Grace of 0 there is no hook. Between the stop
	// signal and SIGKILL is always at least the minimum of hook.RemainingGracePeriod.
	Grace time.Duration
	// PreStop is the hook to run before the stop signal: that of the pod's
	// spec, or that of the container itself if the spec is not known. nil if
	// there is none.
	PreStop *v1.LifecycleHandler
	// Container points into the pod's spec; nil if it is not known.
	Container *v1.Container
}

// Start is one container to create and start.
type Start struct {
	Container *v1.Container // points into the pod's spec
	// Kind is the container's type. Ephemeral containers come first, then init
	// containers, then main ones. The executor continues after a failure.
	Kind pod.ContainerType
	// Existing is the ID of a container that was created and only has to be
	// started; if empty, a container is created.
	Existing string
	// RestartCount numbers the container and its log file. The executor raises
	// it above the numbers of existing logs and to that of the pod's status, since all
	// containers of earlier attempts may have been removed.
	RestartCount int
	// Backoff is to be stored with the new container: the wait between its end
	// and the next start.
	Backoff time.Duration
}

// ReasonCrashLoop is the reason of a container that waits for its backoff.
const ReasonCrashLoop = "CrashLoopBackOff"

// Waiting is why a container is not started yet, with the reason and message of
// its status.
type Waiting struct {
	Reason, Message string
	Until           time.Time
}
