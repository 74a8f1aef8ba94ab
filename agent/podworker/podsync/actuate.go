package podsync

import (
	"context"
	"errors"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/tinylet/tinylet/agent/container"
	"github.com/tinylet/tinylet/agent/container/criconfig"
	"github.com/tinylet/tinylet/agent/pod"
	"github.com/tinylet/tinylet/agent/resource/resize"
	"github.com/tinylet/tinylet/cgroups"
)

// actuate executes the steps of a resize, and then writes the settings that the
// comparison does not cover. It is called at most once in a sync. It stops at the first
// failure. The next sync continues from the state that it observes.
func (r *resizing) actuate(ctx context.Context, s *Syncer, p *v1.Pod) error {
	r.executed = true
	if len(r.plan.Steps) > 0 {
		defer func(begun time.Time) { s.countResized(ctx, s.now().Sub(begun), r.err) }(s.now())
	}
	for i := range r.plan.Steps {
		step := &r.plan.Steps[i]
		if err := s.executeStep(ctx, p, step, r.node); err != nil {
			r.err = resizeOf(step, err)
			if ctx.Err() == nil {
				s.resizeFailed(p, r.err)
			}
			return r.err
		}
	}
	if s.Cgroups != nil {
		if r.err = s.updateCgroups(p, r.runs, r.node); r.err != nil {
			if len(r.plan.Steps) > 0 {
				s.resizeFailed(p, r.err)
			}
			return r.err
		}
	}
	s.resizes.change(p.UID, func(e *resizable) { e.stale, e.failures = false, 0 })
	return nil
}

// updateCgroups updates what follows from requests and limits: the memory
// protection of the pod and of its running containers, and the resources of the
// cgroups above the pod's.
func (s *Syncer) updateCgroups(p *v1.Pod, runs map[string]resize.Running, n *criconfig.Node) error {
	for name, c := range runs {
		if err := s.protectContainer(p, name, c.ID, n); err != nil {
			return err
		}
	}
	if err := s.setCgroup(criconfig.PodCgroup(p, n), cgroups.Resources{Unified: criconfig.PodResources(p, n).Unified}); err != nil {
		return err
	}
	return s.ensureGroups(n, "")
}

func (s *Syncer) executeStep(ctx context.Context, p *v1.Pod, step *resize.Step, n *criconfig.Node) error {
	var r cgroups.Resources
	switch {
	case step.Kind == resize.Update:
		return s.updateContainer(ctx, p, step, n)
	case step.Kind == resize.PodWeight:
		r.CPUWeight = uint64(step.Amount)
	case step.Resource == v1.ResourceMemory:
		r.MemoryMax = step.Amount
	default: // the pod's CPU limit
		r.CPUMax = cgroups.CPUMax{Quota: step.Amount, Period: criconfig.PodResources(p, n).CPUMax.Period}
	}
	return s.setCgroup(criconfig.PodCgroup(p, n), r)
}

// updateContainer updates one container through the runtime. Each update has
// all resources of the container, so that no runtime restores an older value.
//
// Where the kernel does not account swap, a runtime may fail: crun up to 1.21
// tries to write memory.swap.max, which does not exist, and has then applied the
// update in part or not at all. In that case updateContainer writes the container's
// cgroup files.
func (s *Syncer) updateContainer(ctx context.Context, p *v1.Pod, step *resize.Step, n *criconfig.Node) error {
	c, _ := pod.FindContainer(&p.Spec, step.Container)
	sized := *c
	sized.Resources = step.Values.ApplyTo(c.Resources)
	n = s.nodeFor(p.UID, c.Name, n)
	resources := criconfig.UpdateResources(p, &sized, n)
	resources.CpusetCpus = s.CPUs.CPUSet(p.UID, c.Name)
	err := s.Runtime.UpdateContainerResources(ctx, step.ID, resources)
	if errors.Is(err, container.ErrNotFound) {
		return nil // the container exited; its next start uses the allocation
	}
	if err != nil && s.mayWrite(err, n) {
		path := criconfig.ContainerCgroup(criconfig.PodCgroup(p, n), step.ID, n)
		if byHand := s.setCgroup(path, criconfig.ContainerLimits(p, &sized, n)); byHand != nil {
			err = errors.Join(err, byHand)
		} else {
			s.Log.Info("resized container through cgroup files",
				"pod", pod.RefOf(p).String(), "podUID", p.UID, "container", c.Name, "error", err,
				"reason", "the container runtime cannot resize where the kernel does not account swap")
			err = nil
		}
	}
	if err == nil && step.Resource == v1.ResourceMemory {
		s.resizes.change(p.UID, func(e *resizable) { delete(e.previousMemory, c.Name) })
	}
	return err
}

// protectContainer writes the cgroup files that follow from a container's new
// request and limit. It bypasses the runtime, since not all runtimes can update
// these files.
func (s *Syncer) protectContainer(p *v1.Pod, name, id string, n *criconfig.Node) error {
	c, _ := pod.FindContainer(&p.Spec, name)
	files := criconfig.MemoryQoSFiles(p, c, n)
	if len(files) == 0 {
		return nil
	}
	err := s.setCgroup(criconfig.ContainerCgroup(criconfig.PodCgroup(p, n), id, n), cgroups.Resources{Unified: files})
	if errors.Is(err, cgroups.ErrNotFound) {
		return nil // the container exited
	}
	return err
}

// mayWrite reports whether a container's cgroup files may be written because
// the runtime's update failed with err: the runtime has answered, and the
// kernel does not account swap.
func (s *Syncer) mayWrite(err error, n *criconfig.Node) bool {
	return s.Cgroups != nil && !n.SwapAccounting &&
		!errors.Is(err, container.ErrUnavailable) && !errors.Is(err, container.ErrTimeout)
}

func (s *Syncer) setCgroup(path string, r cgroups.Resources) error {
	begun := s.now()
	err := s.Cgroups.Set(path, r)
	s.counted.cgroups.Observe(updateCgroup, s.now().Sub(begun), err)
	return err
}

// withoutLowering returns the resources that a pod's cgroup gets before containers start
// in it. While a resize is in progress it lowers no limit. The steps of the resize do
// that.
func (st *starter) withoutLowering(path string, r cgroups.Resources) cgroups.Resources {
	if !st.state.resizing {
		return r
	}
	l, err := st.Cgroups.Limits(path)
	if err != nil {
		return r
	}
	has := groupOf(&l, &r, st.node)
	if has.MemoryMax.Known && (has.MemoryMax.Value == 0 || has.MemoryMax.Value > r.MemoryMax) {
		r.MemoryMax = 0
	}
	if has.CPUQuota.Known && (has.CPUQuota.Value == 0 || has.CPUQuota.Value > r.CPUMax.Quota) {
		r.CPUMax = cgroups.CPUMax{}
	}
	return r
}
