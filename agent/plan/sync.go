package plan

import (
	"math"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/tinylet/tinylet/agent/container"
	"github.com/tinylet/tinylet/agent/pod"
)

// planner holds one run of Sync.
type planner struct {
	Input
	max time.Duration
	// sandbox is the one that containers may be started in; nil if it has to
	// be made first.
	sandbox *container.Sandbox
	kept    int // main containers that run and stay
	out     Actions
}

// Sync decides what the pod needs next. It neither blocks nor fails, and it
// may be called at any time and as often as anybody likes: the same input
// gives the same actions. For a pod that is being deleted it starts nothing;
// Terminate is for that.
func Sync(in Input) Actions {
	p := planner{Input: in, max: in.MaxBackoff}
	if p.Observed == nil {
		p.Observed = &container.Observed{}
	}
	if p.max <= 0 {
		p.max = defaultMaxBackoff
	}
	p.sandbox = usable(p.Pod, p.Observed)
	p.reset()
	if p.Pod.DeletionTimestamp != nil {
		return p.out
	}
	switch {
	case overByAPI(p.Pod):
		p.finish()
	case p.sandbox == nil:
		p.rebuild()
	default:
		p.converge()
	}
	p.deadline()
	p.prune()
	return p.out
}

// overByAPI says whether the API server holds a terminal phase of the pod,
// which is final. What a manifest says of its own status counts for nothing.
func overByAPI(p *v1.Pod) bool {
	return !pod.IsStatic(p) && (p.Status.Phase == v1.PodSucceeded || p.Status.Phase == v1.PodFailed)
}

// usable is the sandbox that the pod's containers belong in: the newest one
// if it is ready and has the network that the pod asks for.
func usable(p *v1.Pod, o *container.Observed) *container.Sandbox {
	s := o.Sandbox()
	if s == nil || !s.Ready || s.HostNetwork != p.Spec.HostNetwork {
		return nil
	}
	return s
}

// finish gives up the pod: whatever was planned, nothing is started.
func (p *planner) finish() {
	p.reset()
	p.out.KillPod = p.Observed.Running()
	p.out.Done = true
}

// reset forgets what was planned.
func (p *planner) reset() {
	p.out = Actions{}
	if p.sandbox != nil {
		p.out.SandboxID, p.out.Attempt = p.sandbox.ID, p.sandbox.Attempt
	}
}

// rebuild plans a pod without a usable sandbox: either nothing is left to
// run, or it starts from the beginning in a new one.
func (p *planner) rebuild() {
	if p.initFailedForGood() || !p.anyWanted() {
		p.finish()
		return
	}
	p.out.KillPod = len(p.Observed.Sandboxes) > 0 || p.Observed.Running()
	p.out.CreateSandbox = true
	if last := p.Observed.Sandbox(); last != nil {
		p.out.Attempt = min(last.Attempt, math.MaxUint32-1) + 1
	}
	if inits := p.Pod.Spec.InitContainers; len(inits) > 0 {
		p.start(&inits[0], true, p.evidence(inits[0].Name))
		return
	}
	for i := range p.Pod.Spec.Containers {
		c := &p.Pod.Spec.Containers[i]
		if e := p.evidence(c.Name); wanted(p.Pod, c, e) {
			p.start(c, false, e)
		}
	}
}

// initFailedForGood says whether the pod failed in its init containers. What
// ran when the sandbox went counts as failed: it did not come to its end.
func (p *planner) initFailedForGood() bool {
	for i := range p.Pod.Spec.InitContainers {
		c := &p.Pod.Spec.InitContainers[i]
		e := p.evidence(c.Name)
		if e != nil && !succeeded(e) && policyOf(p.Pod, c) == v1.RestartPolicyNever {
			return true
		}
	}
	return false
}

func (p *planner) anyWanted() bool {
	for i := range p.Pod.Spec.Containers {
		c := &p.Pod.Spec.Containers[i]
		if wanted(p.Pod, c, p.evidence(c.Name)) {
			return true
		}
	}
	return false
}

// converge plans a pod whose sandbox is in order.
func (p *planner) converge() {
	initialized, failed := p.inits()
	if failed {
		p.finish()
		return
	}
	if initialized {
		p.mains()
		if p.kept == 0 && !p.starting() {
			p.finish()
			return
		}
	}
	p.strays()
}

// starting says whether a main container is about to start, now or later.
func (p *planner) starting() bool {
	if slices.ContainsFunc(p.out.Start, func(s Start) bool { return !s.Init }) {
		return true
	}
	for i := range p.Pod.Spec.Containers {
		if _, ok := p.out.Waiting[p.Pod.Spec.Containers[i].Name]; ok {
			return true
		}
	}
	return false
}

// mains plans the main containers, all at once.
func (p *planner) mains() {
	for i := range p.Pod.Spec.Containers {
		c := &p.Pod.Spec.Containers[i]
		cur := p.current(c.Name)
		switch {
		case cur == nil:
			if e := p.evidence(c.Name); wanted(p.Pod, c, e) {
				p.start(c, false, e)
			}
		case cur.State == container.StateRunning && !p.changed(c, cur):
			p.kept++
		case cur.State == container.StateExited && !wanted(p.Pod, c, cur):
		default:
			p.replace(c, false, cur)
		}
	}
}

// replace plans the start of what is not running as it should: cur is created,
// dead, unknown, or running from another spec.
func (p *planner) replace(c *v1.Container, init bool, cur *container.Container) {
	switch cur.State {
	case container.StateCreated:
		if p.changed(c, cur) {
			p.start(c, init, p.evidence(c.Name))
			return
		}
		p.add(Start{Container: c, Init: init, Existing: cur.ID, RestartCount: cur.RestartCount, Backoff: cur.Backoff})
	case container.StateRunning:
		p.kill(cur, "Container "+c.Name+" definition changed, will be restarted")
		p.start(c, init, cur)
	case container.StateUnknown:
		p.kill(cur, "Container "+c.Name+" is in an unknown state, killed before its restart")
		p.start(c, init, cur)
	case container.StateExited:
		p.start(c, init, cur)
	}
}

// start plans a new container after the end of last (nil for the first), or
// the wait for it.
func (p *planner) start(c *v1.Container, init bool, last *container.Container) {
	if p.planned(c.Name) {
		return
	}
	s := Start{Container: c, Init: init, RestartCount: p.nextCount(c.Name)}
	if last != nil {
		wait, next := p.backoff(c, last)
		if until := last.FinishedAt.Add(wait); wait > 0 && !last.FinishedAt.After(p.Now) && until.After(p.Now) {
			p.wait(c, wait, until)
			return
		}
		s.Backoff = next
	}
	p.add(s)
}

// add plans one start; a name that a broken spec has twice starts once.
func (p *planner) add(s Start) {
	if !p.planned(s.Container.Name) {
		p.out.Start = append(p.out.Start, s)
	}
}

func (p *planner) planned(name string) bool {
	_, waits := p.out.Waiting[name]
	return waits || slices.ContainsFunc(p.out.Start, func(s Start) bool { return s.Container.Name == name })
}

func (p *planner) kill(c *container.Container, message string) {
	if slices.ContainsFunc(p.out.Kill, func(k Kill) bool { return k.ID == c.ID }) {
		return
	}
	p.out.Kill = append(p.out.Kill, Kill{
		ID: c.ID, Name: c.Name,
		Reason: ReasonKilling, Message: message,
		Grace: pod.GracePeriod(p.Pod),
	})
}

// strays kills what runs beside the current containers: a second one of the
// same name, or one in an older sandbox. Names that the spec does not have
// (a kubelet's ephemeral containers) are left alone in the current sandbox.
func (p *planner) strays() {
	for i := range p.Observed.Containers {
		c := &p.Observed.Containers[i]
		if !mayRun(c) {
			continue
		}
		switch {
		case c.SandboxID != p.sandbox.ID:
			p.kill(c, "Container "+c.Name+" runs in an older pod sandbox")
		case p.specified(c.Name) && p.current(c.Name) != c:
			p.kill(c, "Container "+c.Name+" runs more than once")
		}
	}
}

func (p *planner) specified(name string) bool {
	for _, list := range [2][]v1.Container{p.Pod.Spec.Containers, p.Pod.Spec.InitContainers} {
		for i := range list {
			if list[i].Name == name {
				return true
			}
		}
	}
	return false
}

// until moves Next forward to t, or sets it.
func (p *planner) until(t time.Time) {
	if p.out.Next.IsZero() || t.Before(p.out.Next) {
		p.out.Next = t
	}
}
