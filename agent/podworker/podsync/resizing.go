package podsync

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tinylet/tinylet/agent/container"
	"github.com/tinylet/tinylet/agent/container/criconfig"
	"github.com/tinylet/tinylet/agent/pod"
	"github.com/tinylet/tinylet/agent/resource/resize"
	"github.com/tinylet/tinylet/cgroups"
)

// When a resize is looked at again for which there is no event: a memory limit
// that would lie below what is used, and what was set and does not show.
const (
	memoryLook   = 30 * time.Second
	notShownLook = 3 * time.Minute
)

// resizing is one look at a pod that was resized, and what has to be done.
// The zero value is a pod that never was.
type resizing struct {
	node  *criconfig.Node
	plan  resize.Plan
	runs  map[string]resize.Running // by the container's name
	again time.Duration             // when to look again without an event; 0 is never
	tried bool                      // in this sync
	// behind says that what no look shows may not be as it was allocated.
	behind bool
	err    error
}

// look compares what runs with what was allocated, and notes it for the
// status and for the plan. It reads cgroup files and, before the runtime has
// told what it is, asks it.
func (r *resizing) look(ctx context.Context, s *Syncer, p *v1.Pod, o *container.Observed, f *facts) (err error) {
	f.actual, f.restarts, f.resizing = nil, nil, false
	r.plan, r.runs, r.again, r.behind = resize.Plan{}, nil, 0, false
	if !s.resizes.resized(p.UID) {
		return nil
	}
	ok := false
	if r.node, ok = s.PeekNode(); !ok {
		if r.node, err = s.Node(ctx); err != nil {
			return err
		}
	}
	w := s.world(p, o, f, r.node)
	r.plan, r.runs = resize.PlanOf(p, &w), w.Containers
	r.behind = s.resizes.isBehind(p.UID)
	f.resizing = !r.plan.Settled()
	for _, c := range r.plan.Restart {
		if f.restarts == nil {
			f.restarts = make(map[string]string, len(r.plan.Restart))
		}
		f.restarts[c.ID] = c.Message
	}
	f.freed = s.found(p, !f.resizing) || f.freed
	switch {
	case !f.resizing || len(r.plan.Restart) > 0:
	case r.tried && r.err == nil:
		r.again = notShownLook
		s.resizeFailed(p, errNotShown)
	case r.plan.LowersMemory():
		if err := r.plan.Check(s.memoryUsed(p, &w, r.node)); err != nil {
			r.again = memoryLook
			s.resizeFailed(p, err)
		}
	}
	return nil
}

// due says whether the steps are to be done now: what wants a restart is
// stopped first, and a pod that is stopped or made anew gets what was
// allocated.
func (r *resizing) due(killPod, createSandbox bool) bool {
	return !r.tried && r.again == 0 && len(r.plan.Restart) == 0 && (len(r.plan.Steps) > 0 || r.behind) && !killPod && !createSandbox
}

// next is when to look again without an event; zero is never. What could not be
// carried out is tried again, and is no failure of the sync, after which the
// worker would not hear of the pod's containers until then. A decision that the
// disk did not take is tried again, too.
func (r *resizing) next(s *Syncer, uid types.UID) time.Time {
	switch {
	case r.err != nil:
		failures := s.resizes.failed(uid)
		if failures&(failures-1) == 0 { // no log without end
			s.Log.Warn("resize is not carried out, and will be tried again", "podUID", uid, "failures", failures, "error", r.err)
		}
		return s.now().Add(retryResize(failures))
	case r.again > 0:
		return s.now().Add(r.again)
	case s.resizes.isDue(uid) && (s.Ready == nil || s.Ready()):
		return s.now().Add(memoryLook)
	}
	return time.Time{}
}

// retryResize is the wait after so many failures in a row, 1 at least.
func retryResize(failures int) time.Duration {
	return min(500*time.Millisecond<<min(failures-1, 6), 20*time.Second)
}

// found notes whether a resize is in progress, and tells of its end.
func (s *Syncer) found(p *v1.Pod, settled bool) (done bool) {
	var of int64
	s.resizes.change(p.UID, func(e *resizable) {
		e.conditions, of, done = e.conditions.Found(settled, p.Generation, s.now())
		if settled {
			e.had = nil
		}
	})
	if done {
		s.Events.Normal(pod.RefOf(p), resize.ReasonCompleted, resize.EventMessage(resize.PrefixCompleted, p, of, ""))
	}
	return done
}

// resizeFailed notes why a resize does not go on.
func (s *Syncer) resizeFailed(p *v1.Pod, why error) {
	var of int64
	tell := false
	s.resizes.change(p.UID, func(e *resizable) {
		e.conditions, of, tell = e.conditions.Failed(why, p.Generation, s.now())
	})
	if tell {
		s.Events.Warning(pod.RefOf(p), resize.ReasonError, resize.EventMessage(resize.PrefixError, p, of, why.Error()))
	}
}

// world is what runs of a pod, in its newest sandbox.
func (s *Syncer) world(p *v1.Pod, o *container.Observed, f *facts, n *criconfig.Node) resize.World {
	w := resize.World{Containers: map[string]resize.Running{}, NoCPUQuota: !n.CPUCFSQuota}
	sandbox := o.Sandbox()
	if sandbox == nil || !sandbox.Ready {
		return w
	}
	group := criconfig.PodCgroup(p, n)
	f.actual = map[string]resize.Actual{}
	for c, kind := range pod.Containers(&p.Spec) {
		cur := runs(o, sandbox.ID, c.Name)
		if kind == pod.Ephemeral || cur == nil {
			continue
		}
		a := s.actual(p, c, cur, criconfig.ContainerCgroup(group, cur.ID, n), n)
		f.actual[cur.ID] = a
		w.Containers[c.Name] = resize.Running{ID: cur.ID, Actual: a}
	}
	if s.Cgroups != nil {
		if l, err := s.Cgroups.Limits(group); err == nil {
			wanted := criconfig.PodResources(p, s.nodeFor(p.UID, "", n))
			w.Group, w.Wanted = groupOf(&l, &wanted, n), wantedGroup(&wanted)
		}
	}
	return w
}

// runs is the container of that name that runs in the sandbox, or nil.
func runs(o *container.Observed, sandboxID, name string) *container.Container {
	for i := range o.Containers {
		if c := &o.Containers[i]; c.Name == name && c.SandboxID == sandboxID && c.State == container.StateRunning {
			return c
		}
	}
	return nil
}

// actual is what a container has: by its cgroup's files where they can be
// read, and else as the runtime tells it. The two differ where a limit had to
// be written past the runtime.
func (s *Syncer) actual(p *v1.Pod, c *v1.Container, cur *container.Container, group string, n *criconfig.Node) resize.Actual {
	var a resize.Actual
	if r := cur.Resources; r != nil {
		a = resize.Observed(r.CPUShares, r.CPUQuota, r.CPUPeriod, r.MemoryLimit)
	}
	wanted := resize.Wanted(p, c)
	if s.Cgroups != nil {
		if l, err := s.Cgroups.Limits(group); err == nil {
			limits := criconfig.ContainerLimits(p, c, n)
			a = read(a, &l, &limits, wanted, n)
		}
	}
	if n.CPUCFSQuota && s.CPUs.Unbounded(p.UID, c.Name) { // none is as it should be
		a.CPUQuota, a.CPUPeriod = resize.Recorded(wanted, 0).CPUQuota, 0
	}
	a.MemoryRequest = resize.Known(wanted.MemoryRequest)
	if had, ok := s.resizes.memory(p.UID, c.Name, cur.ID); ok {
		a.MemoryRequest = resize.Known(had)
	}
	return a
}

// read is a with what the files say. How a runtime turns shares into the
// weight is its own affair, and one weight means other shares to another, so
// where a runtime can do all updates its word counts. Else a weight tells that
// it is the one that is wanted, or that it is not.
func read(a resize.Actual, l *cgroups.Limits, limits *cgroups.Resources, wanted resize.Values, n *criconfig.Node) resize.Actual {
	if l.MemoryMax.Known {
		a.MemoryLimit = amountOf(l.MemoryMax, wanted.MemoryLimit)
	}
	if l.CPUQuota.Known {
		a.CPUQuota, a.CPUPeriod = quotaOf(l, limits.CPUMax, n), int64(l.CPUPeriod)
	}
	switch shares := resize.Recorded(wanted, 0).CPUShares; {
	case !l.CPUWeight.Known:
	case a.CPUShares.Known && (n.SwapAccounting || wanted.MemoryLimit <= 0):
	case l.CPUWeight.Value == limits.CPUWeight:
		a.CPUShares = shares
	case a.CPUShares.Known && a.CPUShares != shares:
	case l.CPUWeight.Value == criconfig.CurvedCPUWeight(shares.Value):
		a.CPUShares = shares
	default:
		a.CPUShares = resize.Known(criconfig.Shares(l.CPUWeight.Value))
	}
	return a
}

// groupOf is what the pod's cgroup has, as the plan compares it.
func groupOf(l *cgroups.Limits, wanted *cgroups.Resources, n *criconfig.Node) resize.Group {
	var g resize.Group
	if l.CPUWeight.Known {
		g.CPUWeight = resize.Known(int64(l.CPUWeight.Value))
	}
	if l.CPUQuota.Known {
		g.CPUQuota = quotaOf(l, wanted.CPUMax, n)
		if period := wanted.CPUMax.Period; period != 0 && period != l.CPUPeriod && g.CPUQuota.Value > 0 {
			g.CPUQuota.Value = int64(float64(g.CPUQuota.Value) * float64(period) / float64(l.CPUPeriod))
		}
	}
	if l.MemoryMax.Known {
		g.MemoryMax = amountOf(l.MemoryMax, wanted.MemoryMax)
	}
	return g
}

// wantedGroup is what the pod's cgroup is to have; a quota that is switched off
// is none.
func wantedGroup(r *cgroups.Resources) resize.Group {
	return resize.Group{
		CPUWeight: resize.Known(int64(r.CPUWeight)), CPUQuota: resize.Known(max(r.CPUMax.Quota, 0)), MemoryMax: resize.Known(r.MemoryMax),
	}
}

// amountOf is a limit as the plan has it, where zero is none. The kernel
// rounds bytes down to whole pages: what is wanted, rounded so, is that.
func amountOf(f cgroups.Figure, wanted int64) resize.Amount {
	switch page := int64(os.Getpagesize()); {
	case f.Value == cgroups.NoLimit:
		return resize.Known(0)
	case wanted > 0 && int64(f.Value) == wanted/page*page:
		return resize.Known(wanted)
	}
	return resize.Known(int64(min(f.Value, 1<<62)))
}

// quotaOf is a quota of CPU as the plan has it. Systemd keeps whole percents of
// a CPU: what is wanted, rounded up so, is that.
func quotaOf(l *cgroups.Limits, wanted cgroups.CPUMax, n *criconfig.Node) resize.Amount {
	if n.CgroupDriver == criconfig.DriverSystemd && wanted.Quota > 0 && wanted.Period == l.CPUPeriod &&
		l.CPUQuota.Value == uint64(wanted.Whole().Quota) {
		return resize.Known(wanted.Quota)
	}
	return amountOf(l.CPUQuota, 0)
}

// memoryUsed is what the pod and its containers use. What cannot be read is
// not known.
func (s *Syncer) memoryUsed(p *v1.Pod, w *resize.World, n *criconfig.Node) resize.Usage {
	u := resize.Usage{Containers: make(map[string]resize.Amount, len(w.Containers))}
	if s.Cgroups == nil {
		return u
	}
	group := criconfig.PodCgroup(p, n)
	used := func(path string) (a resize.Amount) {
		if bytes, err := s.Cgroups.MemoryCurrent(path); err == nil {
			a = resize.Known(int64(min(bytes, 1<<62)))
		}
		return a
	}
	u.Pod = used(group)
	for name, c := range w.Containers {
		u.Containers[name] = used(criconfig.ContainerCgroup(group, c.ID, n))
	}
	return u
}

// podActual is what a pod with resources of its own has as a whole; nil is
// not known. Its request shows only in a weight, which tells whether it is
// the one that was allocated.
func (s *Syncer) podActual(p *v1.Pod) *resize.PodActual {
	if p.Spec.Resources == nil || s.Cgroups == nil {
		return nil
	}
	n, ok := s.PeekNode()
	if !ok || s.Cgroups == nil {
		return nil
	}
	l, err := s.Cgroups.Limits(criconfig.PodCgroup(p, n))
	if err != nil {
		return nil
	}
	wanted := criconfig.PodResources(p, n)
	g := groupOf(&l, &wanted, n)
	a := &resize.PodActual{MemoryLimit: g.MemoryMax.Value}
	if period := cmp.Or(wanted.CPUMax.Period, l.CPUPeriod); period > 0 {
		a.CPULimit = int64(float64(g.CPUQuota.Value) * 1000 / float64(period))
	}
	if l.CPUWeight.Value == wanted.CPUWeight {
		requests := pod.Requests(p)
		a.CPURequest = requests.Cpu().MilliValue()
	}
	return a
}

// resizeOf names the pod's resize in errors.
func resizeOf(step *resize.Step, err error) error {
	if step.Container == "" {
		return fmt.Errorf("resize %s of the pod's cgroup: %w", step.Resource, err)
	}
	return fmt.Errorf("resize %s of container %s: %w", step.Resource, step.Container, err)
}
