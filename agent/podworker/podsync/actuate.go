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

// carryOut does the steps of a resize, once in a sync, and what no look would
// show. What fails ends them; the next look goes on from what it finds.
func (r *resizing) carryOut(ctx context.Context, s *Syncer, p *v1.Pod) error {
	r.tried = true
	if len(r.plan.Steps) > 0 {
		defer func(begun time.Time) { s.countResized(ctx, s.now().Sub(begun), r.err) }(s.now())
	}
	for i := range r.plan.Steps {
		step := &r.plan.Steps[i]
		if err := s.carryOut(ctx, p, step, r.node); err != nil {
			r.err = resizeOf(step, err)
			if ctx.Err() == nil {
				s.resizeFailed(p, r.err)
			}
			return r.err
		}
	}
	if s.Cgroups != nil {
		if r.err = s.settleGroups(p, r.runs, r.node); r.err != nil {
			if len(r.plan.Steps) > 0 {
				s.resizeFailed(p, r.err)
			}
			return r.err
		}
	}
	s.resizes.change(p.UID, func(e *resizable) { e.behind, e.failures = false, 0 })
	return nil
}

// settleGroups brings up to date what follows from requests and limits: the
// protection of the memory of the pod and of what runs in it, and what the
// groups above it have.
func (s *Syncer) settleGroups(p *v1.Pod, runs map[string]resize.Running, n *criconfig.Node) error {
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

func (s *Syncer) carryOut(ctx context.Context, p *v1.Pod, step *resize.Step, n *criconfig.Node) error {
	switch step.Kind {
	case resize.PodLimit:
		wanted := criconfig.PodResources(p, n)
		if step.Resource == v1.ResourceMemory {
			return s.setCgroup(criconfig.PodCgroup(p, n), cgroups.Resources{MemoryMax: step.Amount})
		}
		return s.setCgroup(criconfig.PodCgroup(p, n), cgroups.Resources{CPUMax: cgroups.CPUMax{Quota: step.Amount, Period: wanted.CPUMax.Period}})
	case resize.PodWeight:
		return s.setCgroup(criconfig.PodCgroup(p, n), cgroups.Resources{CPUWeight: uint64(step.Amount)})
	case resize.Update:
		return s.updateContainer(ctx, p, step, n)
	}
	return nil
}

// updateContainer has the runtime update one container. All that the container
// is to have goes with each update, so that no runtime sets an older figure
// again.
//
// Where the kernel does not account swap, a runtime may refuse: crun up to
// 1.21 wants to write memory.swap.max, which is not there, and then has done
// nothing or a part. The container's own files are written then.
func (s *Syncer) updateContainer(ctx context.Context, p *v1.Pod, step *resize.Step, n *criconfig.Node) error {
	c, _ := pod.Find(&p.Spec, step.Container)
	sized := *c
	sized.Resources = step.Values.On(c.Resources)
	n = s.nodeFor(p.UID, c.Name, n)
	resources := criconfig.UpdateResources(p, &sized, n)
	resources.CpusetCpus = s.CPUs.For(p.UID, c.Name)
	err := s.Runtime.UpdateContainerResources(ctx, step.ID, resources)
	if errors.Is(err, container.ErrNotFound) {
		return nil // it has ended, and starts with what was allocated
	}
	if err != nil && s.mayWrite(err, n) {
		path := criconfig.ContainerCgroup(criconfig.PodCgroup(p, n), step.ID, n)
		if byHand := s.setCgroup(path, criconfig.ContainerLimits(p, &sized, n)); byHand != nil {
			err = errors.Join(err, byHand)
		} else {
			s.Log.Info("container resized by its cgroup's files: the container runtime cannot, without accounting of swap in the kernel",
				"pod", pod.RefOf(p).String(), "podUID", p.UID, "container", c.Name, "error", err)
			err = nil
		}
	}
	if err == nil && step.Resource == v1.ResourceMemory {
		s.resizes.change(p.UID, func(e *resizable) { delete(e.had, c.Name) })
	}
	return err
}

// protectContainer writes what follows from a container's new request and
// limit past the runtime, which not all of them know to update.
func (s *Syncer) protectContainer(p *v1.Pod, name, id string, n *criconfig.Node) error {
	c, _ := pod.Find(&p.Spec, name)
	files := criconfig.MemoryQoS(p, c, n)
	if len(files) == 0 {
		return nil
	}
	err := s.setCgroup(criconfig.ContainerCgroup(criconfig.PodCgroup(p, n), id, n), cgroups.Resources{Unified: files})
	if errors.Is(err, cgroups.ErrNotFound) {
		return nil // it has ended
	}
	return err
}

// mayWrite says whether a container's files may be written since the runtime
// cannot: it has answered, and the kernel is one of those.
func (s *Syncer) mayWrite(err error, n *criconfig.Node) bool {
	return s.Cgroups != nil && !n.SwapAccounting &&
		!errors.Is(err, container.ErrUnavailable) && !errors.Is(err, container.ErrTimeout)
}

// setCgroup writes limits of a cgroup that is there.
func (s *Syncer) setCgroup(path string, r cgroups.Resources) error {
	begun := s.now()
	err := s.Cgroups.Set(path, r)
	s.counted.cgroups.Observe(updateCgroup, s.now().Sub(begun), err)
	return err
}

// raised is what a pod's cgroup gets before containers start in it: while a
// resize is in progress no limit becomes less, which is for the steps of the
// resize, once what runs takes less.
func (st *starter) raised(path string, r cgroups.Resources) cgroups.Resources {
	if !st.facts.resizing {
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
