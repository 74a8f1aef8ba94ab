package podsync

import (
	"cmp"
	"context"
	"errors"
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

// The intervals at which a resize is checked again without an event: memoryRecheck for a
// memory limit below the current usage and for a decision that is not persisted,
// effectRecheck for resources that were set and are not reported.
const (
	memoryRecheck = 30 * time.Second
	effectRecheck = 3 * time.Minute
)

// resizing has the differences between a resized pod's allocation and its running
// containers, and the steps of the resize, in one sync. The zero value is for a pod that
// was never resized.
type resizing struct {
	node     *criconfig.Node
	plan     resize.Plan
	runs     map[string]resize.Running // by the container's name
	recheck  time.Duration             // time to the next check without an event; 0 means never
	executed bool                      // actuate was called in this sync
	// stale means that settings that are not compared may differ from the
	// allocation.
	stale bool
	err   error
}

// compare compares the running containers with the allocation, and stores the
// result for the status and for the plan. It reads cgroup files. If the runtime
// has not reported the node's settings yet, it calls the runtime, and returns its error.
func (r *resizing) compare(ctx context.Context, s *Syncer, p *v1.Pod, o *container.Observed, f *syncState) (err error) {
	f.actual, f.restarts, f.resizing = nil, nil, false
	r.plan, r.runs, r.recheck, r.stale = resize.Plan{}, nil, 0, false
	if s.resizes.state(p.UID).allocation == nil {
		return nil
	}
	ok := false
	if r.node, ok = s.PeekNode(); !ok {
		if r.node, err = s.Node(ctx); err != nil {
			return err
		}
	}
	w := s.observeResources(p, o, f, r.node)
	r.plan, r.runs = resize.PlanOf(p, &w), w.Containers
	r.stale = s.resizes.state(p.UID).stale
	f.resizing = !r.plan.IsEmpty()
	f.restarts = make(map[string]string, len(r.plan.Restart))
	for _, c := range r.plan.Restart {
		f.restarts[c.ID] = c.Message
	}
	f.resizeCompleted = s.recordProgress(p, !f.resizing) || f.resizeCompleted
	switch {
	case !f.resizing || len(r.plan.Restart) > 0:
	case r.executed && r.err == nil:
		r.recheck = effectRecheck
		s.resizeFailed(p, errors.New("the container runtime or the cgroup does not report the resources that were set"))
	case r.plan.LowersMemory():
		if err := r.plan.Check(s.memoryUsed(p, &w, r.node)); err != nil {
			r.recheck = memoryRecheck
			s.resizeFailed(p, err)
		}
	}
	return nil
}

// due reports whether the steps are to be executed now. Containers that need a
// restart are stopped first. A pod that is killed or gets a new sandbox starts
// with the allocation.
func (r *resizing) due(killPod, createSandbox bool) bool {
	return !r.executed && r.recheck == 0 && len(r.plan.Restart) == 0 && (len(r.plan.Steps) > 0 || r.stale) && !killPod && !createSandbox
}

// next returns the time of the next check without an event; zero means never. It counts a
// failure. A failed resize does not fail the sync: after a failed sync, the worker would
// ignore wakeups until the retry. A decision that could not be persisted is also retried.
func (r *resizing) next(s *Syncer, uid types.UID) time.Time {
	switch {
	case r.err != nil:
		failures := s.resizes.countFailure(uid)
		if failures&(failures-1) == 0 { // log less and less often
			s.Log.Warn("cannot carry out resize", "podUID", uid, "failures", failures, "error", r.err)
		}
		return s.now().Add(retryResize(failures))
	case r.recheck > 0:
		return s.now().Add(r.recheck)
	case s.resizes.state(uid).due && s.Ready():
		return s.now().Add(memoryRecheck)
	}
	return time.Time{}
}

// retryResize returns the wait after that many failures in a row, at least 1.
func retryResize(failures int) time.Duration {
	return min(500*time.Millisecond<<min(failures-1, 6), 20*time.Second)
}

// recordProgress records whether a resize is in progress. It emits an event and returns
// true if the resize has completed.
func (s *Syncer) recordProgress(p *v1.Pod, settled bool) (done bool) {
	var of int64
	s.resizes.change(p.UID, func(e *resizable) {
		e.conditions, of, done = e.conditions.AfterCheck(settled, p.Generation, s.now())
		if settled {
			e.previousMemory = nil
		}
	})
	if done {
		s.Events.Normal(pod.RefOf(p), resize.ReasonCompleted, resize.EventMessage(resize.PrefixCompleted, p, of, ""))
	}
	return done
}

// resizeFailed records why a resize makes no progress. It emits an event if the error is
// new or has changed.
func (s *Syncer) resizeFailed(p *v1.Pod, why error) {
	var of int64
	eventDue := false
	s.resizes.change(p.UID, func(e *resizable) {
		e.conditions, of, eventDue = e.conditions.AfterError(why, p.Generation, s.now())
	})
	if eventDue {
		s.Events.Warning(pod.RefOf(p), resize.ReasonError, resize.EventMessage(resize.PrefixError, p, of, why.Error()))
	}
}

// observeResources returns the running containers of a pod in its newest sandbox, with
// their resources, and those of the pod's cgroup. It returns none if that sandbox is not
// ready. It sets f.actual.
func (s *Syncer) observeResources(p *v1.Pod, o *container.Observed, f *syncState, n *criconfig.Node) resize.State {
	w := resize.State{Containers: map[string]resize.Running{}, NoCPUQuota: !n.CPUCFSQuota}
	sandbox := o.Sandbox()
	if sandbox == nil || !sandbox.Ready {
		return w
	}
	group := criconfig.PodCgroup(p, n)
	f.actual = map[string]resize.Actual{}
	for c, kind := range pod.Containers(&p.Spec) {
		cur := runningContainer(o, sandbox.ID, c.Name)
		if kind == pod.Ephemeral || cur == nil {
			continue
		}
		a := s.actual(p, c, cur, criconfig.ContainerCgroup(group, cur.ID, n), n)
		f.actual[cur.ID] = a
		w.Containers[c.Name] = resize.Running{ID: cur.ID, Actual: a}
	}
	if s.Cgroups != nil {
		if l, err := s.Cgroups.Limits(group); err == nil {
			desired := criconfig.PodResources(p, s.nodeFor(p.UID, "", n))
			w.Cgroup, w.DesiredCgroup = groupOf(&l, &desired, n), desiredCgroup(&desired)
		}
	}
	return w
}

// runningContainer returns the running container of that name in the sandbox, or nil.
func runningContainer(o *container.Observed, sandboxID, name string) *container.Container {
	for i := range o.Containers {
		if c := &o.Containers[i]; c.Name == name && c.SandboxID == sandboxID && c.State == container.StateRunning {
			return c
		}
	}
	return nil
}

// actual returns the actual resources of a container: from its cgroup's files where they
// can be read, and else from the runtime. The two differ if a limit was written without
// the runtime.
func (s *Syncer) actual(p *v1.Pod, c *v1.Container, cur *container.Container, group string, n *criconfig.Node) resize.Actual {
	var a resize.Actual
	if r := cur.Resources; r != nil {
		a = resize.Observed(r.CPUShares, r.CPUQuota, r.CPUPeriod, r.MemoryLimit)
	}
	desired := resize.DesiredValues(p, c)
	if s.Cgroups != nil {
		if l, err := s.Cgroups.Limits(group); err == nil {
			limits := criconfig.ContainerLimits(p, c, n)
			a = read(a, &l, &limits, desired, n)
		}
	}
	if n.CPUCFSQuota && s.CPUs.IgnoresQuota(p.UID, c.Name) { // no quota is the desired state
		a.CPUQuota, a.CPUPeriod = resize.Recorded(desired).CPUQuota, 0
	}
	a.MemoryRequest = resize.Known(desired.MemoryRequest)
	if had, ok := s.resizes.memory(p.UID, c.Name, cur.ID); ok {
		a.MemoryRequest = resize.Known(had)
	}
	return a
}

// read returns a, updated from the cgroup's files. The conversion of shares to a weight
// differs between runtimes, and several shares have the same weight. If the runtime can
// do all updates, the shares that it reports are used. Otherwise the weight is compared
// with the desired one.
func read(a resize.Actual, l *cgroups.Limits, limits *cgroups.Resources, desired resize.Values, n *criconfig.Node) resize.Actual {
	if l.MemoryMax.Known {
		a.MemoryLimit = amountOf(l.MemoryMax, desired.MemoryLimit)
	}
	if l.CPUQuota.Known {
		a.CPUQuota, a.CPUPeriod = quotaOf(l, limits.CPUMax, n), int64(l.CPUPeriod)
	}
	switch shares := resize.Recorded(desired).CPUShares; {
	case !l.CPUWeight.Known:
	case a.CPUShares.Known && (n.SwapAccounting || desired.MemoryLimit <= 0):
	case l.CPUWeight.Value == limits.CPUWeight:
		a.CPUShares = shares
	case a.CPUShares.Known && a.CPUShares != shares:
	case l.CPUWeight.Value == criconfig.CurvedCPUWeight(shares.Value):
		a.CPUShares = shares
	default:
		a.CPUShares = resize.Known(criconfig.SharesOfWeight(l.CPUWeight.Value))
	}
	return a
}

// groupOf returns the resources of the pod's cgroup in the form that the plan
// compares.
func groupOf(l *cgroups.Limits, desired *cgroups.Resources, n *criconfig.Node) resize.CgroupLimits {
	var g resize.CgroupLimits
	if l.CPUWeight.Known {
		g.CPUWeight = resize.Known(int64(l.CPUWeight.Value))
	}
	if l.CPUQuota.Known {
		g.CPUQuota = quotaOf(l, desired.CPUMax, n)
		if period := desired.CPUMax.Period; period != 0 && period != l.CPUPeriod && g.CPUQuota.Value > 0 {
			g.CPUQuota.Value = int64(float64(g.CPUQuota.Value) * float64(period) / float64(l.CPUPeriod))
		}
	}
	if l.MemoryMax.Known {
		g.MemoryMax = amountOf(l.MemoryMax, desired.MemoryMax)
	}
	return g
}

// desiredCgroup returns the desired resources of the pod's cgroup. Zero means no quota.
func desiredCgroup(r *cgroups.Resources) resize.CgroupLimits {
	return resize.CgroupLimits{
		CPUWeight: resize.Known(int64(r.CPUWeight)), CPUQuota: resize.Known(max(r.CPUMax.Quota, 0)), MemoryMax: resize.Known(r.MemoryMax),
	}
}

// amountOf converts a limit to the plan's form, in which zero means none. The kernel
// rounds bytes down to whole pages, so for desired rounded down it returns desired.
func amountOf(f cgroups.Number, desired int64) resize.Amount {
	switch page := int64(os.Getpagesize()); {
	case f.Value == cgroups.NoLimit:
		return resize.Known(0)
	case desired > 0 && int64(f.Value) == desired/page*page:
		return resize.Known(desired)
	}
	return resize.Known(int64(min(f.Value, 1<<62)))
}

// quotaOf converts a CPU quota to the plan's form. systemd stores whole percents of a CPU,
// so for desired rounded up it returns desired.
func quotaOf(l *cgroups.Limits, desired cgroups.CPUMax, n *criconfig.Node) resize.Amount {
	if n.CgroupDriver == criconfig.DriverSystemd && desired.Quota > 0 && desired.Period == l.CPUPeriod &&
		l.CPUQuota.Value == uint64(desired.Whole().Quota) {
		return resize.Known(desired.Quota)
	}
	return amountOf(l.CPUQuota, 0)
}

// memoryUsed returns the memory usage of the pod and its containers in bytes. A value that
// cannot be read is unknown.
func (s *Syncer) memoryUsed(p *v1.Pod, w *resize.State, n *criconfig.Node) resize.Usage {
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

// podActual returns the actual pod-level resources of a pod that has such resources, or
// nil if they are unknown. The CPU request is set only if the cgroup's weight is the
// desired one.
func (s *Syncer) podActual(p *v1.Pod) *resize.PodActual {
	if p.Spec.Resources == nil || s.Cgroups == nil {
		return nil
	}
	n, ok := s.PeekNode()
	if !ok {
		return nil
	}
	l, err := s.Cgroups.Limits(criconfig.PodCgroup(p, n))
	if err != nil {
		return nil
	}
	desired := criconfig.PodResources(p, n)
	g := groupOf(&l, &desired, n)
	a := &resize.PodActual{MemoryLimit: g.MemoryMax.Value}
	if period := cmp.Or(desired.CPUMax.Period, l.CPUPeriod); period > 0 {
		a.CPULimit = int64(float64(g.CPUQuota.Value) * 1000 / float64(period))
	}
	if l.CPUWeight.Value == desired.CPUWeight {
		requests := pod.Requests(p)
		a.CPURequest = requests.Cpu().MilliValue()
	}
	return a
}

func resizeOf(step *resize.Step, err error) error {
	if step.Container == "" {
		return fmt.Errorf("resize %s of pod cgroup: %w", step.Resource, err)
	}
	return fmt.Errorf("resize %s of container %s: %w", step.Resource, step.Container, err)
}
