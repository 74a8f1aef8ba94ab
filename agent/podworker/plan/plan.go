// Package plan decides what a pod needs next. Sync is a pure function of the
// pod's spec, of what the runtime shows and of the time; it acts on nothing
// and keeps nothing, so an agent that died between any two actions goes on
// from what it finds. The rules are those of the kubelet's computePodActions
// (pkg/kubelet/kuberuntime/kuberuntime_manager.go) but for these, which keep
// the promise that a restart of the agent neither restarts nor doubles a
// container:
//
//   - A container that was created and never started is started if its hash
//     still fits, else removed and made anew under the same restart count.
//     The kubelet makes a second one and leaves the first to its GC.
//   - Init containers count only in the sandbox they ran in, so none has to be
//     purged when the sandbox is made anew.
//   - A second ready sandbox is stopped and removed; the kubelet would restart
//     the whole pod.
//   - A pod that never restarts gets a new sandbox as long as one of its
//     containers has not run at all; the kubelet leaves it pending for ever.
//   - The crash-loop wait is kept with the dead container rather than in
//     memory, and neither a container that was lost with its node is a crash
//     nor an init container that did its work and runs again.
//   - The restart of all containers (KEP-5532) is done when nothing is left of
//     the containers that were; the one that asked for it goes last, so no
//     mark in the pod's status has to tell that it is under way. It waits
//     until that container is 10 s old: a board should not spend itself on it.
package plan

import (
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/tinylet/tinylet/agent/container"
)

// Input is all that Sync looks at. It is not changed.
type Input struct {
	Pod      *v1.Pod
	Observed *container.Observed // nil means that the runtime knows nothing of the pod
	Now      time.Time

	// StartedAt is when the agent first saw the pod, if it knows. The pod's
	// active deadline counts from the oldest of this, pod.status.startTime
	// and the creation of what is observed.
	StartedAt time.Time

	// Hash computes the container hash to compare with the one that a
	// container was created with. Nil compares nothing. It is called for each
	// container that runs or waits to be started, so it should be cheap.
	Hash func(*v1.Container) string

	// Probes are what is known of running containers, by container ID. One
	// that is not in it has not failed, and has started unless it has a
	// startup probe.
	Probes map[string]Probe

	// Resized are running containers, by ID, that want a restart for a resize,
	// with the message of its event.
	Resized map[string]string

	// BootID is the kernel's; empty is not known.
	BootID string

	// MaxBackoff is the longest crash-loop wait; zero means 300 s.
	MaxBackoff time.Duration
}

// Probe is what is known of one running container beside its state.
type Probe struct {
	// Started says that the postStart hook has ended well and the startup
	// probe has passed, where there are any. Of a sidecar it lets the next
	// init container start.
	Started bool
	// Failed says that the container has to be killed.
	Failed bool
	// Kind is what failed: one of the Kind constants.
	Kind string
	// Grace is the probe's own terminationGracePeriodSeconds; nil leaves the
	// pod's.
	Grace *int64
}

// Kinds of failures for which a container is killed.
const (
	KindLiveness  = "Liveness"
	KindStartup   = "Startup"
	KindPostStart = "PostStart"
)

// Actions is what to do next, in this order:
//
//  1. KillPod as Terminate says, else Kill (all at once) and StopSandboxes.
//  2. Remove, then RemoveSandboxes.
//  3. CreateSandbox.
//  4. Start, in order.
//
// The executor stops at the first step that fails and looks again; above all
// nothing is started after a kill that failed. It looks again after it acted,
// too: Sync plans the next step only from what the runtime shows.
type Actions struct {
	// KillPod stops all containers and all sandboxes, because the sandbox has
	// to be made anew or because the pod is done.
	KillPod bool
	// CreateSandbox makes a new sandbox, and Start means that one.
	CreateSandbox bool
	// Attempt numbers the sandbox that Start means, new or not.
	Attempt uint32
	// SandboxID is the sandbox to start containers in unless CreateSandbox
	// is set; empty if there is none.
	SandboxID string

	Kill  []Kill
	Start []Start

	// StopSandboxes are ready sandboxes beside the current one.
	StopSandboxes []string
	// Remove are the IDs of containers that are over and not needed as
	// evidence any more: of each name the current container and the newest
	// dead one beside it stay. They are removed in this order, and after one
	// that could not be removed none.
	Remove []string
	// Reset says that Remove is all that is left of the pod's init and main
	// containers, which are about to start from the beginning. Their logs
	// stay, and number the ones that come.
	Reset bool
	// RemoveSandboxes are older sandboxes with nothing left in them that is
	// worth keeping. They are stopped first if they are still ready.
	RemoveSandboxes []string

	// Waiting says by container name why a container is not started yet.
	Waiting map[string]Waiting

	// Next is when to look again even if nothing happens; zero is never. The
	// caller waits for it on the monotonic clock and then calls Sync with a
	// Now that is not before it, so that a clock which is set back meanwhile
	// does not prolong the wait.
	Next time.Time

	// Done says that the pod is over for good: nothing will be started any
	// more, and what still runs is stopped by KillPod.
	Done bool
	// FailReason and FailMessage are set when the pod is over for a reason
	// that its containers do not show.
	FailReason, FailMessage string
}

// Idle says whether there is nothing to do now.
func (a *Actions) Idle() bool {
	return !a.KillPod && !a.CreateSandbox && len(a.Kill) == 0 && len(a.Start) == 0 &&
		len(a.StopSandboxes) == 0 && len(a.Remove) == 0 && len(a.RemoveSandboxes) == 0
}

// ReasonKilling is the reason of the event that tells of a Kill.
const ReasonKilling = "Killing"

// Kill is one container to stop.
type Kill struct {
	ID, Name        string
	Reason, Message string // of the event
	// Grace is the time for the PreStop hook and then between the stop signal
	// and the kill; the latter gets pod.MinGracePeriod at least.
	Grace time.Duration
	// PreStop is the hook to run before; nil if there is none.
	PreStop *v1.LifecycleHandler
	// Container points into the pod's spec; nil if that does not have it.
	Container *v1.Container
}

// Start is one container to create and start.
type Start struct {
	Container *v1.Container // points into the pod's spec
	// Init and Ephemeral say in which list of the spec it stands; neither, a
	// main container. Ephemeral ones come first, init containers before main
	// ones. The failure of one does not hold up the others.
	Init, Ephemeral bool
	// Existing is the ID of a container that was created and only has to be
	// started; empty creates one.
	Existing string
	// RestartCount numbers the container and its log file. The executor
	// raises it if the log folder already has that number: an unlucky removal
	// may have taken all evidence of earlier runs.
	RestartCount int
	// Backoff is to be stored with the new container: how long to wait after
	// its end before the next start.
	Backoff time.Duration
}

// ReasonCrashLoop is why a container waits after an end.
const ReasonCrashLoop = "CrashLoopBackOff"

// Waiting is why a container is not started yet, in the words of its status.
type Waiting struct {
	Reason, Message string
	Until           time.Time
}
