package resize

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/tinylet/tinylet/agent/pod"
)

// ContainerResources returns resources and allocatedResources of a container's status
// (convertToAPIContainerStatuses in pkg/kubelet/kubelet_pods.go). c is the allocated
// container. actual holds its actual resources, nil unless it runs. old is the last
// status of the same run of the container, or nil.
//
//   - allocatedResources are the allocated requests;
//   - a container that does not run has its allocation as resources;
//   - a running container has its actual resources, if its allocation has a list for
//     them; an unknown value comes from old, or else from the allocation;
//   - a cpu value at the kernel's minimum is the allocated one.
//
// A CPU request that rounds to the container's actual shares is the allocated one,
// too. The kubelet reports the rounded one.
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
		showMemory(out.Limits, was.Limits, actual.MemoryLimit.Value)
	}
	if out.Requests != nil {
		given := out.Requests[v1.ResourceCPU]
		if has := actual.CPUShares; !has.Known || pod.CPUShares(pod.MilliValue(given)) != has.Value {
			showCPU(out.Requests, was.Requests, actual.cpuRequest(), pod.MinShares)
		}
		showMemory(out.Requests, was.Requests, actual.MemoryRequest.Value)
	}
	return out, c.Resources.Requests
}

// PodActual holds the actual resources of a running pod as a whole: millicores and
// bytes, 0 for none or unknown.
type PodActual struct {
	CPURequest, CPULimit, MemoryLimit int64
}

// PodResources returns resources and allocatedResources of the pod's status, the
// feature InPlacePodLevelResourcesVerticalScaling of 1.36
// (convertToAPIPodLevelResourcesStatus). p is the allocated pod. actual is nil unless
// its phase is Running. old is its last status or nil. Before the pod runs the result
// is the allocation, then the values of its cgroup. The memory request is in no
// cgroup: it is the allocated one. The kubelet repeats its last status there and so
// never reports a new one.
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
	showCPU(out.Requests, was.Requests, actual.CPURequest, pod.MinShares)
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

// showCPU sets the actual value, or the old one if that is unknown. At or below least
// the kernel does not distinguish values.
func showCPU(list, was v1.ResourceList, has, least int64) {
	switch given := list[v1.ResourceCPU]; {
	case has <= 0:
		keep(list, was, v1.ResourceCPU)
	case has > least || pod.MilliValue(given) > least:
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

// show keeps an equal amount in the user's notation.
func show(list v1.ResourceList, name v1.ResourceName, q *resource.Quantity) {
	if has, ok := list[name]; ok && has.Cmp(*q) == 0 {
		return
	}
	list[name] = *q
}
