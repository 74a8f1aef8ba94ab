package resize

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tinylet/tinylet/agent/pod"
)

// Outcome is what becomes of a resize that the API server asks for.
type Outcome uint8

// The outcomes. Unchanged says that the allocation is what the spec asks for,
// Allocate that it becomes what the spec asks for, Deferred that it may do so
// later, Infeasible that it never can on this node.
const (
	Unchanged Outcome = iota
	Allocate
	Deferred
	Infeasible
)

func (o Outcome) String() string {
	switch o {
	case Unchanged:
		return "Unchanged"
	case Allocate:
		return "Allocate"
	case Deferred:
		return v1.PodReasonDeferred
	case Infeasible:
		return v1.PodReasonInfeasible
	}
	return "Unknown"
}

// Messages of infeasible resizes (pkg/kubelet/allocation/handlers.go).
const (
	messageSwap         = "In-place resize of containers with swap is not supported."
	messageStaticCPU    = `Resize is infeasible for Guaranteed Pods alongside CPU Manager policy "static"`
	messageStaticMemory = `Resize is infeasible for Guaranteed Pods alongside Memory Manager policy "Static"`
)

// Causes of infeasible resizes: the label of pod_infeasible_resizes_total.
const (
	CauseSwap         = "swap_limitation"
	CauseStaticCPU    = "guaranteed_pod_cpu_manager_static_policy"
	CauseStaticMemory = "guaranteed_pod_memory_manager_static_policy"
)

// Features are what of a node decides whether a resize can be. The zero value
// is a node that lets no container swap and gives nobody a CPU alone.
type Features struct {
	// LimitedSwap says that containers may swap (memorySwap.swapBehavior) and
	// that the kernel bounds it.
	LimitedSwap bool
	// StaticCPU and StaticMemory say that the policies of the CPU and of the
	// memory manager are static.
	StaticCPU, StaticMemory bool
	// ExclusiveCPUs and ExclusiveMemory are the feature gates
	// InPlacePodVerticalScalingExclusiveCPUs and -ExclusiveMemory, which are
	// off in 1.36.
	ExclusiveCPUs, ExclusiveMemory bool
}

// Room is what the node says of a pod that is to have a certain size.
type Room struct {
	// Reason and Message say why it does not fit, such as OutOfcpu; an empty
	// Reason says that it does.
	Reason, Message string
	// Preempt are the pods that have to be killed first, for a critical pod.
	Preempt []types.UID
}

// Node is what a resize is checked against.
type Node struct {
	Features Features
	// Room checks the pod, as large as it is to become, against the node's
	// allocatable and the other pods, each as Reserved counts it, by the same
	// rules as a new pod. It is asked last, and once at most.
	Room func(*v1.Pod) Room
}

// Decision is an outcome and its reasons.
type Decision struct {
	Outcome Outcome
	// Reason is what the event says: Infeasible or what Room said, and
	// Message what the condition and the event say. Both are empty unless
	// the resize is deferred or infeasible.
	Reason, Message string
	// Cause is for counters; only with Infeasible.
	Cause string
	// Preempt are the pods to be killed before the resize is allocated.
	Preempt []types.UID
}

// Decide says what becomes of the pod as the API server has it, given what it
// was allocated (handlePodResourcesResize in
// pkg/kubelet/allocation/allocation_manager.go, and handlers.go beside it).
//
// All that Room refuses is deferred, also what is more than the node has
// altogether: up to 1.35 that was infeasible, but allocatable may grow. A
// static pod is what its manifest says and cannot be resized
// (ValidatePodResize in pkg/apis/core/validation). A pod that has ended keeps
// what it had.
func Decide(p *v1.Pod, a Allocation, node Node) Decision {
	if pod.IsStatic(p) || pod.IsMirror(p) || p.Status.Phase == v1.PodSucceeded || p.Status.Phase == v1.PodFailed || a.Meets(p) {
		return Decision{Outcome: Unchanged}
	}
	if cause, message := infeasible(p, a, &node.Features); cause != "" {
		return Decision{Outcome: Infeasible, Reason: v1.PodReasonInfeasible, Message: message, Cause: cause}
	}
	room := node.Room(p)
	if room.Reason != "" {
		return Decision{Outcome: Deferred, Reason: room.Reason, Message: room.Message}
	}
	return Decision{Outcome: Allocate, Preempt: room.Preempt}
}

// infeasible says what of the node forbids the resize, or nothing.
func infeasible(p *v1.Pod, a Allocation, f *Features) (cause, message string) {
	if f.LimitedSwap && resizesSwap(p, a) {
		return CauseSwap, messageSwap
	}
	if pod.QoS(p) != v1.PodQOSGuaranteed {
		return "", ""
	}
	switch {
	case f.StaticCPU && !f.ExclusiveCPUs && a.changesRequest(p, v1.ResourceCPU):
		return CauseStaticCPU, messageStaticCPU
	case f.StaticMemory && !f.ExclusiveMemory && a.changesRequest(p, v1.ResourceMemory):
		return CauseStaticMemory, messageStaticMemory
	}
	return "", ""
}

// changesRequest says whether a container's request becomes another. In a
// Guaranteed pod the limit is the request.
func (a Allocation) changesRequest(p *v1.Pod, name v1.ResourceName) bool {
	for c, kind := range pod.Containers(&p.Spec) {
		given := a.Containers[c.Name].Requests[name]
		if kind != pod.Ephemeral && given.Cmp(c.Resources.Requests[name]) != 0 {
			return true
		}
	}
	return false
}

// resizesSwap says whether a container that swaps, before or after, would go
// on running with another memory request, by which its swap is measured
// (disallowResizeForSwappableContainers).
func resizesSwap(p *v1.Pod, a Allocation) bool {
	was := a.Apply(p)
	for c, kind := range pod.Containers(&p.Spec) {
		given, known := a.Containers[c.Name]
		request := given.Requests[v1.ResourceMemory]
		if kind == pod.Ephemeral || !known || request.Cmp(c.Resources.Requests[v1.ResourceMemory]) == 0 ||
			restarts(c, v1.ResourceMemory) {
			continue
		}
		if swaps(p, &c.Resources) || swaps(was, &given) {
			return true
		}
	}
	return false
}

// swaps says whether a container of those resources may swap where the node
// lets containers do so (GetContainerSwapBehavior in pkg/kubelet/kuberuntime).
func swaps(p *v1.Pod, r *v1.ResourceRequirements) bool {
	if pod.IsCritical(p) || pod.QoS(p) != v1.PodQOSBurstable {
		return false
	}
	request, limit := r.Requests[v1.ResourceMemory], r.Limits[v1.ResourceMemory]
	return request.Cmp(limit) != 0
}

// restarts says whether the container wants to be restarted for a change of
// the resource.
func restarts(c *v1.Container, name v1.ResourceName) bool {
	for i := range c.ResizePolicy {
		if c.ResizePolicy[i].ResourceName == name {
			return c.ResizePolicy[i].RestartPolicy == v1.RestartContainer
		}
	}
	return false
}
