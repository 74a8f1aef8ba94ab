package resize

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/tinylet/tinylet/agent/pod"
)

// ContainerResources are resources and allocatedResources of a container's
// status (convertToAPIContainerStatuses in pkg/kubelet/kubelet_pods.go). c is
// the container as it was allocated. Actual is what it has while it runs, nil
// while it does not; old is the last status of the same run of it, or nil.
//
//   - allocatedResources are the requests that were allocated;
//   - a container that does not run shows what was allocated;
//   - one that runs shows what it has, where the allocation has a list for
//     it: what is not known stays as old had it, and is else as allocated;
//   - a cpu so small that the kernel knows no less shows as it was allocated.
//
// A request of cpu that the kernel's shares round to what the container has
// shows as it was allocated, too, where the kubelet shows the rounded one.
func ContainerResources(c *v1.Container, actual *Actual, old *v1.ContainerStatus) (*v1.ResourceRequirements, v1.ResourceList) {
	out := c.Resources.DeepCopy()
	if actual == nil {
		return out, c.Resources.Requests
	}
	var was v1.ResourceRequirements
	if old != nil && old.Resources != nil && old.State.Running != nil {
		was = *old.Resources
	}
	if out.Limits != nil {
		showCPU(out.Limits, was.Limits, actual.cpuLimit(), minMilliLimit)
		showMemory(out.Limits, was.Limits, wantedOf(actual.MemoryLimit))
	}
	if out.Requests != nil {
		given := out.Requests[v1.ResourceCPU]
		if has := actual.CPUShares; !has.Known || sharesOf(milli(given)) != has.Value {
			showCPU(out.Requests, was.Requests, actual.cpuRequest(), minShares)
		}
		showMemory(out.Requests, was.Requests, wantedOf(actual.MemoryRequest))
	}
	return out, c.Resources.Requests
}

// PodActual is what a running pod has as a whole: thousandths of cpu and
// bytes, zero for what is none or not known.
type PodActual struct {
	CPURequest, CPULimit, MemoryLimit int64
}

// PodResources are resources and allocatedResources of the pod's status, the
// feature InPlacePodLevelResourcesVerticalScaling of 1.36
// (convertToAPIPodLevelResourcesStatus). p is the pod as it was allocated,
// actual nil unless its phase is Running, old its last status or nil. Before
// it runs the status shows what was allocated; then what its cgroup has. The
// memory request is in no cgroup: it shows as it was allocated, where the
// kubelet repeats its last status and so never shows a new one.
func PodResources(p *v1.Pod, actual *PodActual, old *v1.PodStatus) (*v1.ResourceRequirements, v1.ResourceList) {
	allocated := pod.Requests(p)
	out := p.Spec.Resources.DeepCopy()
	if out == nil {
		out = &v1.ResourceRequirements{}
	}
	if actual == nil {
		out.Requests, out.Limits = allocated.DeepCopy(), pod.Limits(p)
		return out, allocated
	}
	if out.Requests == nil {
		out.Requests = v1.ResourceList{}
	}
	if out.Limits == nil {
		out.Limits = v1.ResourceList{}
	}
	var was v1.ResourceRequirements
	if old != nil && old.Phase == v1.PodRunning && old.Resources != nil {
		was = *old.Resources
	}
	showCPU(out.Requests, was.Requests, actual.CPURequest, minShares)
	showCPU(out.Limits, was.Limits, actual.CPULimit, minMilliLimit)
	showMemory(out.Limits, was.Limits, actual.MemoryLimit)
	if _, own := out.Requests[v1.ResourceMemory]; !own {
		keep(out.Requests, allocated, v1.ResourceMemory)
	}
	if len(out.Limits) == 0 {
		out.Limits = nil
	}
	return out, allocated
}

// showCPU puts in what there is, or what there was; at or below least the
// kernel knows no difference.
func showCPU(list, was v1.ResourceList, has, least int64) {
	switch given := list[v1.ResourceCPU]; {
	case has <= 0:
		keep(list, was, v1.ResourceCPU)
	case has > least || milli(given) > least:
		show(list, v1.ResourceCPU, resource.NewMilliQuantity(has, resource.DecimalSI))
	}
}

func showMemory(list, was v1.ResourceList, has int64) {
	if has <= 0 {
		keep(list, was, v1.ResourceMemory)
		return
	}
	show(list, v1.ResourceMemory, resource.NewQuantity(has, resource.BinarySI))
}

func keep(list, was v1.ResourceList, name v1.ResourceName) {
	if q, ok := was[name]; ok {
		list[name] = q
	}
}

// show leaves an amount that is the same as the user wrote it.
func show(list v1.ResourceList, name v1.ResourceName, q *resource.Quantity) {
	if has, ok := list[name]; ok && has.Cmp(*q) == 0 {
		return
	}
	list[name] = *q
}
