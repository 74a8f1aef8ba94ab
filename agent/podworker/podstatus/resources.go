package podstatus

import (
	v1 "k8s.io/api/core/v1"

	"github.com/tinylet/tinylet/agent/container"
	"github.com/tinylet/tinylet/agent/resource/resize"
)

// resources fills in what the container was allocated, and what it has.
func (g *generator) resources(c *v1.Container, current *container.Container, s, old *v1.ContainerStatus) {
	if old != nil && old.ContainerID != s.ContainerID {
		old = nil // of another run
	}
	s.Resources, s.AllocatedResources = resize.ContainerResources(c, g.actual(c, current), old)
}

// actual is what a running container has; nil for one that does not run. No
// runtime tells a memory request: without a resize it is as allocated.
func (g *generator) actual(c *v1.Container, current *container.Container) *resize.Actual {
	if current.State != container.StateRunning {
		return nil
	}
	a, known := g.Actual[current.ID]
	if r := current.Resources; !known && r != nil {
		a = resize.Observed(r.CPUShares, r.CPUQuota, r.CPUPeriod, r.MemoryLimit)
	}
	if !known {
		a.MemoryRequest = resize.Known(resize.Wanted(g.Pod, c).MemoryRequest)
	}
	return &a
}

// podResources fills in those of a pod that has some as a whole.
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

// resizeConditions tell of a pod that has not ended.
func (g *generator) resizeConditions(s *v1.PodStatus) {
	if !terminal(s.Phase) {
		s.Conditions = append(s.Conditions, g.Resize.List()...)
	}
}
