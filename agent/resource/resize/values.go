package resize

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/tinylet/tinylet/agent/pod"
)

// Values are the resizable resources of a container: cpu in millicores, memory in
// bytes. 0 means no request or no limit.
type Values struct {
	CPURequest, CPULimit       int64
	MemoryRequest, MemoryLimit int64
}

// DesiredValues returns the container's values in the allocated pod. A missing container
// limit defaults to the pod-level limit (containerResourcesFromRequirements in
// pkg/kubelet/kuberuntime), and a missing CPU request to the limit, as at the start
// of the container.
func DesiredValues(p *v1.Pod, c *v1.Container) Values {
	v := Values{
		CPULimit:      pod.MilliValue(limit(p, c, v1.ResourceCPU)),
		MemoryRequest: pod.Value(c.Resources.Requests[v1.ResourceMemory]),
		MemoryLimit:   pod.Value(limit(p, c, v1.ResourceMemory)),
	}
	v.CPURequest = v.CPULimit
	if q, ok := c.Resources.Requests[v1.ResourceCPU]; ok {
		v.CPURequest = pod.MilliValue(q)
	}
	return v
}

func limit(p *v1.Pod, c *v1.Container, name v1.ResourceName) resource.Quantity {
	q := c.Resources.Limits[name]
	if own := p.Spec.Resources; own != nil && q.Sign() <= 0 {
		return own.Limits[name]
	}
	return q
}

// ApplyTo returns r with the values in place of its cpu and memory, as the basis of an
// update's limits. A request of 0 is set explicitly, because it differs from a
// missing one.
func (v Values) ApplyTo(r v1.ResourceRequirements) v1.ResourceRequirements {
	r = *r.DeepCopy()
	if r.Requests == nil {
		r.Requests = v1.ResourceList{}
	}
	if r.Limits == nil {
		r.Limits = v1.ResourceList{}
	}
	r.Requests[v1.ResourceCPU] = *resource.NewMilliQuantity(v.CPURequest, resource.DecimalSI)
	r.Requests[v1.ResourceMemory] = *resource.NewQuantity(v.MemoryRequest, resource.BinarySI)
	setLimit(r.Limits, v1.ResourceCPU, resource.NewMilliQuantity(v.CPULimit, resource.DecimalSI))
	setLimit(r.Limits, v1.ResourceMemory, resource.NewQuantity(v.MemoryLimit, resource.BinarySI))
	return r
}

func setLimit(list v1.ResourceList, name v1.ResourceName, q *resource.Quantity) {
	if q.IsZero() {
		delete(list, name)
		return
	}
	list[name] = *q
}
