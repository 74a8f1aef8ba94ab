package podstatus

import (
	v1 "k8s.io/api/core/v1"

	"github.com/tinylet/tinylet/agent/container"
	"github.com/tinylet/tinylet/agent/resource/resize"
)

// resources sets the container's allocated and actual resources.
func (g *generator) resources(c *v1.Container, current *container.Container, s, old *v1.ContainerStatus) {
	if old != nil && old.ContainerID != s.ContainerID {
		old = nil // belongs to another container ID
	}
	s.Resources, s.AllocatedResources = resize.ContainerResources(c, g.actual(c, current), old)
}

// actual returns the resources of a running container; nil for one that does
// not run. No runtime reports a memory request: without a resize it equals the
// allocation.
func (g *generator) actual(c *v1.Container, current *container.Container) *resize.Actual {
	if current.State != container.StateRunning {
		return nil
	}
	a, known := g.Actual[current.ID]
	if r := current.Resources; !known && r != nil {
		a = resize.Observed(r.CPUShares, r.CPUQuota, r.CPUPeriod, r.MemoryLimit)
	}
	if !known {
		a.MemoryRequest = resize.Known(resize.DesiredValues(g.Pod, c).MemoryRequest)
	}
	return &a
}

// podResources sets the resources of a pod that has pod-level resources.
func (g *generator) podResources(s *v1.PodStatus) {
	if g.Pod.Spec.Resources == nil {
		return
	}
	actual := g.PodActual
	switch {
	case s.Phase != v1.PodRunning:
		actual = nil
	case actual == nil:
		actual = new(resize.PodActual)
	}
	s.Resources, s.AllocatedResources = resize.PodResources(g.Pod, actual, g.old)
}
