package resize

import (
	"math"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// Values are what can be resized of a container: cpu in thousandths, memory
// in bytes. Zero is no request or no limit.
type Values struct {
	CPURequest, CPULimit       int64
	MemoryRequest, MemoryLimit int64
}

// Wanted are the container's values in the pod as it was allocated. A limit
// that the container does not have is the pod's own
// (containerResourcesFromRequirements in pkg/kubelet/kuberuntime), and a
// missing request of cpu the limit, as the container was started.
func Wanted(p *v1.Pod, c *v1.Container) Values {
	v := Values{
		CPULimit:      milli(limit(p, c, v1.ResourceCPU)),
		MemoryRequest: whole(c.Resources.Requests[v1.ResourceMemory]),
		MemoryLimit:   whole(limit(p, c, v1.ResourceMemory)),
	}
	v.CPURequest = v.CPULimit
	if q, ok := c.Resources.Requests[v1.ResourceCPU]; ok {
		v.CPURequest = milli(q)
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

// On is r with the values in place of its cpu and memory: what the limits of
// an update are made of. A zero request is written out, since it is not the
// same as none.
func (v Values) On(r v1.ResourceRequirements) v1.ResourceRequirements {
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

// maxMilli keeps a hostile quantity inside the arithmetic: a billion CPUs.
const maxMilli = 1_000_000_000_000

func milli(q resource.Quantity) int64 {
	switch {
	case q.Sign() <= 0:
		return 0
	case q.CmpInt64(maxMilli/1000) >= 0:
		return maxMilli
	}
	return q.MilliValue()
}

func whole(q resource.Quantity) int64 {
	switch {
	case q.Sign() <= 0:
		return 0
	case q.CmpInt64(math.MaxInt64) >= 0:
		return math.MaxInt64
	}
	return q.Value()
}
