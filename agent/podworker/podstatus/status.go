// Package podstatus owns what a pod's status says. Generate makes a PodStatus
// from spec and observation and has no effects; Store keeps the newest one of
// each pod in memory. The words and rules are those of the kubelet
// (pkg/kubelet/kubelet_pods.go and pkg/kubelet/status/generate.go), which
// kubectl and controllers read.
package podstatus

import (
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tinylet/tinylet/agent/container"
	"github.com/tinylet/tinylet/agent/pod"
	"github.com/tinylet/tinylet/agent/resource/resize"
)

// Reason is why a whole pod is not run: a word in CamelCase, which programs
// read, and a message for people.
type Reason struct {
	Reason, Message string
}

// Waiting is why one container does not run yet, in the same form.
type Waiting struct {
	Reason, Message string
}

// Probe is what a container's probes found.
type Probe struct {
	Started, Ready bool
}

// Input is all that Generate looks at. It is not changed.
type Input struct {
	Pod      *v1.Pod
	Observed *container.Observed // nil means that the runtime knows nothing of the pod
	// Previous is the last status generated; nil uses the API server's, or
	// none for a static pod.
	Previous *v1.PodStatus
	Now      time.Time

	// Waiting says by container name why a container could not be started
	// yet: CrashLoopBackOff, ErrImagePull, CreateContainerConfigError and the
	// like. It counts for what should be started and does not run.
	Waiting map[string]Waiting
	// Rejected is set for a pod that may not run here: it has failed.
	Rejected *Reason
	// Failed is set for a pod that was given up although its containers could
	// go on, such as DeadlineExceeded, Evicted or Preempting.
	Failed *Reason
	// Disruption is set for a pod that the node ended for its own sake, such
	// as TerminationByKubelet: the condition DisruptionTarget of its end.
	Disruption *Reason
	// Terminating says that the pod is being stopped: nothing starts again.
	Terminating bool
	// Terminated says that the pod has been stopped: nothing runs.
	Terminated bool

	// Probes are the results by container ID. A running container that is
	// not in it is what Previous says of it; a new one has started unless it
	// has a startup probe, and is ready unless it has a readiness probe.
	Probes map[string]Probe
	// RecursiveReadOnly says that the pod's runtime handler can mount
	// read-only what is mounted below a volume.
	RecursiveReadOnly bool
	// Messages are the termination messages by container ID. A container that
	// is not in it keeps the message that Previous has, so each has to be read
	// only once.
	Messages map[string]string
	// Actual is what running containers have, by ID. One that is not in it has
	// what the runtime tells of it.
	Actual map[string]resize.Actual
	// PodActual is what the pod has as a whole; nil is not known.
	PodActual *resize.PodActual
	// Resize are the conditions of its resizes.
	Resize resize.Conditions
	// HostIPs are the node's addresses, the primary first; empty keeps those
	// of Previous.
	HostIPs []string
	// Runtime is the name before "://" in container IDs; empty is containerd.
	Runtime string
}

// generator holds one run of Generate.
type generator struct {
	Input
	old *v1.PodStatus // never nil
	api *v1.PodStatus // what the API server holds, empty for a static pod
	// restarting says that all containers are about to be restarted;
	// removing, that those which are gone were removed for that.
	restarting, removing bool
	// held says that the phase is not shown yet, since something still runs.
	held bool
}

// Generate makes the pod's status. The same input gives the same status, and
// a status generated upon itself does not change; times are cut to seconds as
// the API has them. The result shares the spec's resource lists with the pod.
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
	if g.Runtime == "" {
		g.Runtime = "containerd"
	}

	s := v1.PodStatus{
		ObservedGeneration: max(in.Pod.Generation, g.old.ObservedGeneration),
		QOSClass:           pod.QoS(in.Pod),
		StartTime:          g.startTime(),
	}
	if r := in.Rejected; r != nil {
		s.Phase, s.Reason, s.Message = v1.PodFailed, r.Reason, "Pod was rejected: "+r.Message
		return s
	}
	g.restartAll()
	s.InitContainerStatuses = g.initContainers()
	s.ContainerStatuses = g.mainContainers()
	s.EphemeralContainerStatuses = g.ephemeralContainers()
	if in.Terminated {
		g.terminate(&s)
	}
	g.phase(&s)
	g.podResources(&s)
	g.addresses(&s)
	g.conditions(&s)
	g.hold(&s)
	g.trimMessages(&s)
	return s
}

// startTime is when the node took the pod on, which never changes. An agent
// that forgot it takes the oldest evidence.
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

// timeOf is the time as the API keeps it, in whole seconds.
func timeOf(t time.Time) metav1.Time {
	if t.IsZero() {
		return metav1.Time{}
	}
	return metav1.NewTime(t.UTC().Truncate(time.Second))
}
