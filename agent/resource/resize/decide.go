package resize

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tinylet/tinylet/agent/pod"
)

// Outcome is the result of the decision on a requested resize.
type Outcome uint8

// The outcomes. Unchanged: the allocation equals the spec. Allocate: the spec becomes
// the allocation. Deferred: the spec may become the allocation later. Infeasible: it
// never can on this node.
const (
	Unchanged Outcome = iota
	Allocate
	Deferred
	Infeasible
)

func (o Outcome) String() string {
	return [...]string{"Unchanged", "Allocate", v1.PodReasonDeferred, v1.PodReasonInfeasible}[o]
}

// Messages of infeasible resizes (pkg/kubelet/allocation/handlers.go).
const (
	messageSwap      = "In-place resize of containers with swap is not supported."
	messageStaticCPU = `Resize is infeasible for Guaranteed Pods alongside CPU Manager policy "static"`
)

// Causes of infeasible resizes: the label of pod_infeasible_resizes_total.
const (
	causeSwap      = "swap_limitation"
	causeStaticCPU = "guaranteed_pod_cpu_manager_static_policy"
)

// Features are the properties of a node that make resizes infeasible. The zero value
// is a node without container swap and without exclusive CPUs.
type Features struct {
	// LimitedSwap means that containers may swap (memorySwap.swapBehavior) and that
	// the kernel limits their swap.
	LimitedSwap bool
	// StaticCPU means that the policy of the CPU manager is static. The feature gate
	// InPlacePodVerticalScalingExclusiveCPUs is off in 1.36.
	StaticCPU bool
}

// Fit is the result of checking whether a pod of a new size fits on the node.
type Fit struct {
	// Reason and Message describe why the pod does not fit, such as OutOfcpu. An
	// empty Reason means that it fits.
	Reason, Message string
	// Preempt holds the pods that must be killed first, for a critical pod.
	Preempt []types.UID
}

// Decision is an outcome with its reasons.
type Decision struct {
	Outcome Outcome
	// Reason is the reason in the event: Infeasible or the reason of the Fit. Message is
	// the message of the condition and of the event. Both are empty unless the resize
	// is deferred or infeasible.
	Reason, Message string
	// Cause is the metric label; it is set only with Infeasible.
	Cause string
	// Preempt holds the pods to kill before the resize is allocated.
	Preempt []types.UID
}

// Decide decides about a resize. p is the pod from the API server, a its allocation
// (handlePodResourcesResize in pkg/kubelet/allocation/allocation_manager.go, and
// handlers.go in the same package). checkFit checks the resized pod against the node's
// allocatable and the other pods, each as returned by Reserved, by the same rules as a
// new pod. Decide calls it last, and at most once.
//
// Whatever checkFit rejects is deferred, including requests above the node's capacity: up
// to 1.35 these were infeasible, but allocatable may grow. A static pod is defined by
// its manifest and cannot be resized (ValidatePodResize in pkg/apis/core/validation).
// A terminated pod keeps its allocation.
func Decide(p *v1.Pod, a Allocation, f Features, checkFit func(*v1.Pod) Fit) Decision {
	if pod.IsStatic(p) || pod.IsMirror(p) || pod.IsTerminal(p.Status.Phase) || a.MatchesSpec(p) {
		return Decision{Outcome: Unchanged}
	}
	if cause, message := infeasible(p, a, f); cause != "" {
		return Decision{Outcome: Infeasible, Reason: v1.PodReasonInfeasible, Message: message, Cause: cause}
	}
	room := checkFit(p)
	if room.Reason != "" {
		return Decision{Outcome: Deferred, Reason: room.Reason, Message: room.Message}
	}
	return Decision{Outcome: Allocate, Preempt: room.Preempt}
}

// infeasible returns the cause and message if the node's features forbid the resize,
// or "".
func infeasible(p *v1.Pod, a Allocation, f Features) (cause, message string) {
	if f.LimitedSwap && resizesSwap(p, a) {
		return causeSwap, messageSwap
	}
	if f.StaticCPU && pod.QOSClass(p) == v1.PodQOSGuaranteed && a.changesCPURequest(p) {
		return causeStaticCPU, messageStaticCPU
	}
	return "", ""
}

// changesCPURequest reports whether the CPU request of any container changes. In a
// Guaranteed pod the limit equals the request.
func (a Allocation) changesCPURequest(p *v1.Pod) bool {
	for c, kind := range pod.Containers(&p.Spec) {
		given := a.Containers[c.Name].Requests[v1.ResourceCPU]
		if kind != pod.Ephemeral && given.Cmp(c.Resources.Requests[v1.ResourceCPU]) != 0 {
			return true
		}
	}
	return false
}

// resizesSwap reports whether a container that may swap, before or after the resize,
// would continue to run with another memory request, which determines its swap limit
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
		if maySwap(p, &c.Resources) || maySwap(was, &given) {
			return true
		}
	}
	return false
}

// maySwap reports whether a container with those resources may swap if the node allows
// containers to swap (GetContainerSwapBehavior in pkg/kubelet/kuberuntime).
func maySwap(p *v1.Pod, r *v1.ResourceRequirements) bool {
	if pod.IsCritical(p) || pod.QOSClass(p) != v1.PodQOSBurstable {
		return false
	}
	request, limit := r.Requests[v1.ResourceMemory], r.Limits[v1.ResourceMemory]
	return request.Cmp(limit) != 0
}

// restarts reports whether the container's resize policy for the resource is
// RestartContainer.
func restarts(c *v1.Container, name v1.ResourceName) bool {
	for i := range c.ResizePolicy {
		if c.ResizePolicy[i].ResourceName == name {
			return c.ResizePolicy[i].RestartPolicy == v1.RestartContainer
		}
	}
	return false
}
