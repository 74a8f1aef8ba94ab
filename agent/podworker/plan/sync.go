package plan

import (
	"math"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/tinylet/tinylet/agent/container"
	"github.com/tinylet/tinylet/agent/pod"
)

// planner is the state of one call of Sync.
type planner struct {
	Input
	max time.Duration // maximum backoff
	// sandbox is the sandbox in which containers may be started; nil if it has
	// to be created first.
	sandbox   *container.Sandbox
	remaining int // main containers that keep running, or are killed and restarted
	ending    int // main containers that are killed and not restarted
	out       Actions
}

// Sync computes the next actions for the pod. It neither blocks nor fails. The same
// input gives the same actions. For a pod with a deletion timestamp it returns none; use
// Terminate.
func Sync(in Input) Actions {
	p := planner{Input: in, max: in.MaxBackoff}
	if p.Observed == nil {
		p.Observed = &container.Observed{}
	}
	if p.max <= 0 {
		p.max = defaultMaxBackoff
	}
	p.sandbox = p.Observed.UsableSandbox(p.Pod.Spec.HostNetwork)
	p.clear()
	if p.Pod.DeletionTimestamp != nil {
		return p.out
	}
	resetting := false
	switch {
	case TerminalInAPI(p.Pod):
		p.finish()
	case p.needsReset():
		resetting = true
		p.reset()
	case p.sandbox == nil:
		p.rebuild()
	default:
		p.converge()
	}
	p.deadline()
	if !resetting || p.out.Done {
		p.prune()
	}
	return p.out
}

// TerminalInAPI reports whether the API server has a terminal phase of the pod,
// which is final. The status in a manifest is ignored.
func TerminalInAPI(p *v1.Pod) bool {
	return !pod.IsStatic(p) && pod.IsTerminal(p.Status.Phase)
}

// finish ends the pod. It replaces all planned actions by KillPod, if something runs.
func (p *planner) finish() {
	p.clear()
	p.out.KillPod = p.Observed.Running()
	p.out.Done = true
}

// clear drops all planned actions.
func (p *planner) clear() {
	p.out = Actions{}
	if p.sandbox != nil {
		p.out.SandboxID, p.out.Attempt = p.sandbox.ID, p.sandbox.Attempt
	}
}

// mayHoldAddress reports whether a sandbox has to be stopped before a new one is
// created, since it may hold an address or other resources of this boot. A sandbox that
// is not ready and of an earlier boot is stopped later: after a power cut, the pods start
// first.
func (p *planner) mayHoldAddress(s container.Sandbox) bool {
	return s.Ready || p.BootID == "" || s.BootID == "" || s.BootID == p.BootID
}

// rebuild plans a pod without a usable sandbox: either nothing is left to run,
// or it starts from the beginning in a new sandbox.
func (p *planner) rebuild() {
	if p.initFailedForGood() || !p.anyShouldStart() {
		p.finish()
		return
	}
	p.out.KillPod = p.Observed.Running() || slices.ContainsFunc(p.Observed.Sandboxes, p.mayHoldAddress)
	p.out.CreateSandbox = true
	if last := p.Observed.Sandbox(); last != nil {
		p.out.Attempt = min(last.Attempt, math.MaxUint32-1) + 1
	}
	if inits := p.Pod.Spec.InitContainers; len(inits) > 0 {
		p.start(&inits[0], pod.Init, p.lastStarted(inits[0].Name))
		return
	}
	for i := range p.Pod.Spec.Containers {
		c := &p.Pod.Spec.Containers[i]
		if e := p.lastStarted(c.Name); shouldStart(p.Pod, c, e) {
			p.start(c, pod.Main, e)
		}
	}
}

// initFailedForGood reports whether an init container failed and is not restarted. One
// that ran when the sandbox was lost counts as failed, since it did not complete.
func (p *planner) initFailedForGood() bool {
	for i := range p.Pod.Spec.InitContainers {
		c := &p.Pod.Spec.InitContainers[i]
		e := p.lastStarted(c.Name)
		if e != nil && !succeeded(e) && !retries(p.Pod, c, e) {
			return true
		}
	}
	return false
}

func (p *planner) anyShouldStart() bool {
	for i := range p.Pod.Spec.Containers {
		c := &p.Pod.Spec.Containers[i]
		if shouldStart(p.Pod, c, p.lastStarted(c.Name)) {
			return true
		}
	}
	return false
}

// converge plans a pod whose sandbox is usable.
func (p *planner) converge() {
	p.ephemerals()
	initialized, failed := p.inits()
	if failed {
		p.finish()
		return
	}
	if initialized {
		p.mains()
		if p.remaining == 0 && !p.starting() {
			p.end()
			return
		}
	}
	p.killDuplicates()
}

// end plans the end of a pod without a main container that keeps running or is restarted.
// Main containers that failed a probe are killed first, each with its own event. It drops
// all other actions.
func (p *planner) end() {
	if p.ending == 0 {
		p.finish()
		return
	}
	kills := slices.DeleteFunc(p.out.Kill, func(k Kill) bool {
		_, kind := pod.FindContainer(&p.Pod.Spec, k.Name)
		return kind != pod.Main
	})
	p.clear()
	p.out.Kill = kills
}

// starting reports whether a main container is started or waits for its backoff.
func (p *planner) starting() bool {
	if slices.ContainsFunc(p.out.Start, func(s Start) bool { return s.Kind == pod.Main }) {
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
			if e := p.lastStarted(c.Name); shouldStart(p.Pod, c, e) {
				p.start(c, pod.Main, e)
			}
		case cur.State == container.StateRunning && !p.changed(c, cur):
			if message, failed := p.failure(pod.Main, c, cur); failed {
				p.killFailed(c, cur, message)
				continue
			}
			p.remaining++
		case cur.State == container.StateExited && !shouldStart(p.Pod, c, cur):
		default:
			p.replace(c, pod.Main, cur)
		}
	}
}

// replace plans the start of a container whose current one, cur, is created, exited,
// unknown, or running from another spec.
func (p *planner) replace(c *v1.Container, kind pod.ContainerType, cur *container.Container) {
	switch cur.State {
	case container.StateCreated:
		if p.changed(c, cur) {
			p.start(c, kind, p.lastStarted(c.Name))
			return
		}
		p.out.Start = append(p.out.Start, Start{
			Container: c, Kind: kind, Existing: cur.ID, RestartCount: cur.RestartCount, Backoff: cur.Backoff,
		})
	case container.StateRunning:
		p.kill(c, cur, p.whyReplaced(c, kind, cur))
		p.start(c, kind, cur)
	case container.StateUnknown:
		p.kill(c, cur, "Container "+c.Name+" is in an unknown state, killed before its restart")
		p.start(c, kind, cur)
	case container.StateExited:
		p.start(c, kind, cur)
	}
}

// whyReplaced returns the event message for a container that runs from another
// spec.
func (p *planner) whyReplaced(c *v1.Container, kind pod.ContainerType, cur *container.Container) string {
	resized := p.Resized[cur.ID]
	switch {
	case resized != "":
		return resized
	case kind == pod.Init:
		return "Init container " + c.Name + " definition changed"
	}
	return "Container " + c.Name + " definition changed, will be restarted"
}

// start plans a new container after the end of last (nil for the first), or the
// wait for it.
func (p *planner) start(c *v1.Container, kind pod.ContainerType, last *container.Container) {
	s := Start{Container: c, Kind: kind, RestartCount: p.nextCount(c.Name)}
	// An init container that succeeded and runs again, because its sandbox was
	// lost, has not crashed: a board may lose its power several times in a row.
	again := kind == pod.Init && !pod.IsRestartableInit(c) && last != nil && succeeded(last)
	if last != nil && !again {
		wait, next := p.backoff(c, last)
		if until := last.FinishedAt.Add(wait); wait > 0 && !last.FinishedAt.After(p.Now) && until.After(p.Now) {
			p.wait(c, wait, until)
			return
		}
		s.Backoff = next
	}
	p.out.Start = append(p.out.Start, s)
}

// wakeAt sets Next to t, unless Next is earlier.
func (p *planner) wakeAt(t time.Time) {
	if p.out.Next.IsZero() || t.Before(p.out.Next) {
		p.out.Next = t
	}
}
