// Package podstatus generates and stores the status of pods. Generate is a pure function
// of the spec, the runtime's state and the previous status. Store keeps the newest status
// of each pod in memory. Reasons, messages and rules are those of the kubelet
// (pkg/kubelet/kubelet_pods.go and pkg/kubelet/status/generate.go), since kubectl and
// controllers depend on them.
package podstatus

import (
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tinylet/tinylet/agent/container"
	"github.com/tinylet/tinylet/agent/pod"
	"github.com/tinylet/tinylet/agent/resource/resize"
)

// Reason is why a pod failed or a container waits: a reason in CamelCase for programs, and
// a message for users.
type Reason struct {
	Reason, Message string
}

// Input is all that Generate reads. Generate does not change it.
type Input struct {
	Pod      *v1.Pod
	Observed *container.Observed // nil means that the runtime has nothing of the pod
	// Previous is the last generated status; nil uses the API server's, or none
	// for a static pod.
	Previous *v1.PodStatus
	Now      time.Time

	// Waiting has by container name the reason why a container could not be
	// started yet: CrashLoopBackOff, ErrImagePull, CreateContainerConfigError
	// and the like. It applies to containers that should be started and do not
	// run.
	Waiting map[string]Reason
	// Rejected is set for a pod that was not admitted: it has failed.
	Rejected *Reason
	// Failed is set for a pod that was ended although its containers could
	// continue, with a reason such as DeadlineExceeded, Evicted or Preempting.
	Failed *Reason
	// Disruption is set for a pod that the node ended for a reason of the node, such
	// as TerminationByKubelet. It becomes the condition DisruptionTarget once the
	// pod's phase is terminal.
	Disruption *Reason
	// Terminating means that the pod is being stopped. No container starts again.
	Terminating bool
	// Terminated means that the pod has been stopped. No container runs.
	Terminated bool

	// Probes are the probe results by container ID. A running container without
	// an entry keeps the values of Previous. A new one has started unless it
	// has a startup probe, and is ready unless it has a readiness probe.
	Probes map[string]pod.ProbeResult
	// RecursiveReadOnly means that the pod's runtime handler supports recursive
	// read-only mounts.
	RecursiveReadOnly bool
	// Messages are the termination messages by container ID. A container
	// without an entry keeps the message of Previous, so each message has to be
	// read only once.
	Messages map[string]string
	// Actual are the actual resources of running containers, by ID. A container
	// without an entry has those that the runtime reports.
	Actual map[string]resize.Actual
	// PodActual are the actual resources of the pod as a whole; nil means
	// unknown.
	PodActual *resize.PodActual
	// Resize are the conditions of the pod's resizes.
	Resize resize.Conditions
	// HostIPs are the node's addresses, the primary first; empty keeps those of
	// Previous.
	HostIPs []string
}

// generator is the state of one call of Generate.
type generator struct {
	Input
	old *v1.PodStatus // never nil
	api *v1.PodStatus // what the API server has, empty for a static pod
	// restarting means that all containers are about to be restarted. removing
	// means that absent containers were removed for that.
	restarting, removing bool
	// suppressed means that the terminal phase is suppressed, since a container still
	// runs.
	suppressed bool
}

// Generate returns the pod's status. The same input gives the same status, and
// a status generated with itself as Previous does not change. Times are truncated to
// seconds as in the API. The status of a rejected pod has only the phase, reason, message,
// generation, QoS class and start time. The result shares memory with the input.
func Generate(in Input) v1.PodStatus {
	g := generator{Input: in, old: in.Previous, api: &v1.PodStatus{}}
	if !pod.IsStatic(in.Pod) {
		g.api = &in.Pod.Status
	}
	if g.old == nil {
		g.old = g.api
	}
	if g.Observed == nil {
		g.Observed = &container.Observed{}
	}

	s := v1.PodStatus{
		ObservedGeneration: max(in.Pod.Generation, g.old.ObservedGeneration),
		QOSClass:           pod.QOSClass(in.Pod),
		StartTime:          g.startTime(),
	}
	if r := in.Rejected; r != nil {
		s.Phase, s.Reason, s.Message = v1.PodFailed, r.Reason, "Pod was rejected: "+r.Message
		return s
	}
	g.restartAll()
	g.containers(&s)
	if in.Terminated {
		g.terminate(&s)
	}
	g.phase(&s)
	g.podResources(&s)
	g.addresses(&s)
	g.conditions(&s)
	g.suppressPhase(&s)
	g.trimMessages(&s)
	return s
}

// startTime returns when the node accepted the pod. It never changes. Without a previous
// one it is the creation of the oldest sandbox or container, or else Now.
func (g *generator) startTime() *metav1.Time {
	for _, t := range []*metav1.Time{g.old.StartTime, g.api.StartTime} {
		if t != nil && !t.IsZero() {
			return t
		}
	}
	oldest := g.Now
	consider := func(t time.Time) {
		if !t.IsZero() && t.Before(oldest) {
			oldest = t
		}
	}
	for i := range g.Observed.Sandboxes {
		consider(g.Observed.Sandboxes[i].CreatedAt)
	}
	for i := range g.Observed.Containers {
		consider(g.Observed.Containers[i].CreatedAt)
	}
	t := timeOf(oldest)
	return &t
}

// timeOf returns the time as the API has it, in whole seconds.
func timeOf(t time.Time) metav1.Time {
	if t.IsZero() {
		return metav1.Time{}
	}
	return metav1.NewTime(t.UTC().Truncate(time.Second))
}
