package plan

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/tinylet/tinylet/agent/container"
)

// dice draws small numbers from the fuzzer's bytes; when those run out
// everything is 0, which is always the calmest choice.
type dice struct{ bytes []byte }

func (d *dice) roll(n int) int {
	if len(d.bytes) == 0 {
		return 0
	}
	b := d.bytes[0]
	d.bytes = d.bytes[1:]
	return int(b) % n
}

func (d *dice) chance(percent int) bool { return d.roll(100) > 100-percent }

// world is a container runtime with as many rules as the plan relies on.
type world struct {
	t          *testing.T
	dice       *dice
	pod        *v1.Pod
	now        time.Time
	sandboxes  []container.Sandbox
	containers []container.Container
	ids        int
}

func (w *world) observe() *container.Observed {
	o := &container.Observed{Sandboxes: slices.Clone(w.sandboxes), Containers: slices.Clone(w.containers)}
	order(o)
	return o
}

func (w *world) id(kind string) string {
	w.ids++
	return fmt.Sprintf("%s-%d", kind, w.ids)
}

func (w *world) container(id string) *container.Container {
	i := slices.IndexFunc(w.containers, func(c container.Container) bool { return c.ID == id })
	if i < 0 {
		w.t.Fatalf("no container %q", id)
	}
	return &w.containers[i]
}

func (w *world) end(c *container.Container, code int32, reason string) {
	if mayRun(c) {
		c.State, c.ExitCode, c.Reason, c.FinishedAt = container.StateExited, code, reason, w.now
	}
}

func (w *world) stopSandbox(id string) {
	for i := range w.sandboxes {
		if w.sandboxes[i].ID == id {
			w.sandboxes[i].Ready = false
		}
	}
	for i := range w.containers {
		if w.containers[i].SandboxID == id {
			w.end(&w.containers[i], 137, "Error")
		}
	}
}

func (w *world) createSandbox(attempt uint32) string {
	for _, s := range w.sandboxes {
		if s.Attempt == attempt {
			w.t.Fatalf("attempt %d is taken by sandbox %q", attempt, s.ID)
		}
	}
	s := container.Sandbox{ID: w.id("sandbox"), Attempt: attempt, Ready: true, CreatedAt: w.now, HostNetwork: w.pod.Spec.HostNetwork}
	w.sandboxes = append(w.sandboxes, s)
	return s.ID
}

func (w *world) create(s Start, sandboxID string) string {
	for _, c := range w.containers {
		if c.Name == s.Container.Name && c.RestartCount == s.RestartCount {
			w.t.Fatalf("the name %s_%d is reserved for %q", c.Name, c.RestartCount, c.ID)
		}
	}
	c := container.Container{
		ID: w.id(s.Container.Name), Name: s.Container.Name, SandboxID: sandboxID, State: container.StateCreated,
		CreatedAt: w.now, Hash: hashOf(s.Container), RestartCount: s.RestartCount, Backoff: s.Backoff,
	}
	w.containers = append(w.containers, c)
	return c.ID
}

func (w *world) start(id string) {
	c := w.container(id)
	if c.State != container.StateCreated {
		w.t.Fatalf("start of %q, which is %v", id, c.State)
	}
	for i := range w.containers {
		if o := &w.containers[i]; o.Name == c.Name && mayRun(o) {
			w.t.Fatalf("start of %q while %q is %v", id, o.ID, o.State)
		}
	}
	c.State, c.StartedAt = container.StateRunning, w.now
}

// steps turns actions into single calls of the runtime, between any two of
// which the agent may die.
func (w *world) steps(a Actions) (steps []func()) {
	do := func(f func()) { steps = append(steps, f) }
	if a.KillPod {
		t := Terminate(w.pod, w.observe())
		for _, stage := range t.Stages {
			for _, s := range stage {
				do(func() { w.end(w.container(s.ID), 143, "Error") })
			}
		}
		for _, id := range t.Sandboxes {
			do(func() { w.stopSandbox(id) })
		}
	}
	for _, k := range a.Kill {
		do(func() { w.end(w.container(k.ID), 143, "Error") })
	}
	for _, id := range a.StopSandboxes {
		do(func() { w.stopSandbox(id) })
	}
	for _, id := range a.Remove {
		do(func() {
			w.container(id)
			w.containers = slices.DeleteFunc(w.containers, func(c container.Container) bool { return c.ID == id })
		})
	}
	for _, id := range a.RemoveSandboxes {
		do(func() {
			w.sandboxes = slices.DeleteFunc(w.sandboxes, func(s container.Sandbox) bool { return s.ID == id })
			w.containers = slices.DeleteFunc(w.containers, func(c container.Container) bool { return c.SandboxID == id })
		})
	}
	sandboxID := a.SandboxID
	if a.CreateSandbox {
		do(func() { sandboxID = w.createSandbox(a.Attempt) })
	}
	for _, s := range a.Start {
		id := s.Existing
		if id == "" {
			do(func() { id = w.create(s, sandboxID) })
		}
		do(func() { w.start(id) })
	}
	return steps
}

// sync plans once, checks the plan and acts on it, in chaos perhaps not to
// the end.
func (w *world) sync(chaos bool) Actions {
	seen := w.observe()
	copied := w.observe()
	a := Sync(Input{Pod: w.pod, Observed: seen, Now: w.now, Hash: hashOf})
	if !reflect.DeepEqual(copied, seen) {
		w.t.Fatalf("Sync changed its input: %+v", seen)
	}
	w.lawful(a, seen)
	steps := w.steps(a)
	if chaos && w.dice.chance(30) {
		steps = steps[:w.dice.roll(len(steps)+1)]
	}
	for _, step := range steps {
		step()
	}
	return a
}

// lawful checks what must hold of any plan for any observation.
func (w *world) lawful(a Actions, seen *container.Observed) {
	byID := map[string]*container.Container{}
	for i := range seen.Containers {
		byID[seen.Containers[i].ID] = &seen.Containers[i]
	}
	killed, started := map[string]bool{}, map[string]bool{}
	for _, k := range a.Kill {
		if killed[k.ID] || byID[k.ID] == nil || !mayRun(byID[k.ID]) {
			w.t.Errorf("kills %q twice or in vain", k.ID)
		}
		killed[k.ID] = true
	}
	for _, id := range a.Remove {
		if byID[id] == nil || mayRun(byID[id]) {
			w.t.Errorf("removes %q, which may run", id)
		}
	}
	for _, s := range a.Start {
		name := s.Container.Name
		if _, waits := a.Waiting[name]; started[name] || waits {
			w.t.Errorf("starts %s twice, or while it waits", name)
		}
		started[name] = true
		for _, c := range byID {
			if c.Name == name && mayRun(c) && !killed[c.ID] && !a.KillPod {
				w.t.Errorf("starts %s while %q is %v", name, c.ID, c.State)
			}
		}
		if s.Existing != "" && (byID[s.Existing] == nil || byID[s.Existing].State != container.StateCreated || slices.Contains(a.Remove, s.Existing)) {
			w.t.Errorf("starts %q, which is not there to start", s.Existing)
		}
	}
	if a.KillPod && len(a.Kill) > 0 || a.Done && (a.CreateSandbox || len(a.Start) > 0) {
		w.t.Errorf("contradicts itself: %+v", a)
	}
	if len(a.Start) > 0 && !a.CreateSandbox && (seen.Sandbox() == nil || a.SandboxID != seen.Sandbox().ID || !seen.Sandbox().Ready) {
		w.t.Errorf("starts in no ready sandbox: %+v", a)
	}
}

// disturb lets something happen.
func (w *world) disturb() {
	w.now = w.now.Add(time.Duration(w.dice.roll(60)) * time.Second)
	for i := range w.containers {
		if c := &w.containers[i]; c.State == container.StateRunning && w.dice.chance(30) {
			code := int32(w.dice.roll(2))
			w.end(c, code, []string{"Completed", "Error"}[code])
		}
	}
	switch w.dice.roll(40) {
	case 1: // the power goes
		for i := range w.sandboxes {
			w.sandboxes[i].Ready = false
		}
		for i := range w.containers {
			w.end(&w.containers[i], 255, "Unknown")
		}
	case 2:
		if len(w.sandboxes) > 0 {
			w.stopSandbox(w.sandboxes[w.dice.roll(len(w.sandboxes))].ID)
		}
	case 3:
		if len(w.containers) > 0 {
			if c := &w.containers[w.dice.roll(len(w.containers))]; c.State == container.StateRunning {
				c.State = container.StateUnknown
			}
		}
	case 4:
		w.now = w.now.Add(-time.Duration(w.dice.roll(250)) * time.Hour)
	case 5:
		w.now = w.now.Add(time.Duration(w.dice.roll(250)) * 1000 * time.Hour)
	case 6:
		image("a", fmt.Sprintf("img:%d", w.dice.roll(3)))(w.pod)
	}
}

// calm lets init containers and, unless the pod restarts always, the main
// ones come to a good end.
func (w *world) calm() {
	for i := range w.containers {
		c := &w.containers[i]
		regularInit := slices.ContainsFunc(w.pod.Spec.InitContainers, func(s v1.Container) bool { return s.Name == c.Name && s.RestartPolicy == nil })
		main := slices.ContainsFunc(w.pod.Spec.Containers, func(s v1.Container) bool { return s.Name == c.Name })
		if regularInit || main && w.pod.Spec.RestartPolicy != v1.RestartPolicyAlways {
			w.end(c, 0, "Completed")
		}
	}
}

// settle syncs in a calm world until nothing is left to do.
func (w *world) settle() {
	const enough = 40
	for range enough {
		a := w.sync(false)
		if w.t.Failed() {
			return
		}
		w.calm()
		if !a.Idle() {
			continue
		}
		if !a.Next.IsZero() {
			w.now = a.Next
			continue
		}
		if w.settled(a) {
			return
		}
	}
	w.t.Errorf("did not settle: %+v\nin %+v", Sync(Input{Pod: w.pod, Observed: w.observe(), Now: w.now, Hash: hashOf}), w.observe())
}

// settled says whether the pod is done with nothing running, or runs each
// main container once from its present spec; and nothing is left over.
func (w *world) settled(a Actions) bool {
	runs, all := map[string]int{}, map[string]int{}
	for i := range w.containers {
		c := &w.containers[i]
		if mayRun(c) {
			runs[c.Name]++
		}
		if !w.specified(c.Name) {
			continue
		}
		all[c.Name]++
		if c.State == container.StateCreated {
			return false
		}
	}
	for _, n := range all {
		if n > 2 {
			return false
		}
	}
	if a.Done {
		return len(runs) == 0
	}
	for i := range w.pod.Spec.Containers {
		if runs[w.pod.Spec.Containers[i].Name] != 1 {
			return false
		}
	}
	return true
}

func (w *world) specified(name string) bool {
	named := func(c v1.Container) bool { return c.Name == name }
	return slices.ContainsFunc(w.pod.Spec.Containers, named) || slices.ContainsFunc(w.pod.Spec.InitContainers, named)
}

func (w *world) randomPod() {
	policies := []v1.RestartPolicy{v1.RestartPolicyAlways, v1.RestartPolicyOnFailure, v1.RestartPolicyNever}
	w.pod = basePod(policy(policies[w.dice.roll(3)]))
	if w.dice.chance(20) {
		sidecars("s")(w.pod)
	}
	inits([]string{"i", "j"}[:w.dice.roll(3)]...)(w.pod)
}

// randomState is what no agent would leave behind.
func (w *world) randomState() {
	for range w.dice.roll(4) {
		w.sandboxes = append(w.sandboxes, container.Sandbox{
			ID: w.id("sandbox"), Attempt: uint32(len(w.sandboxes)), Ready: w.dice.roll(2) == 1,
			HostNetwork: w.dice.chance(10), CreatedAt: w.now.Add(-time.Duration(w.dice.roll(100)) * time.Minute),
		})
	}
	if len(w.sandboxes) == 0 {
		return
	}
	names := []string{"a", "b", "i", "j", "s"}
	for n := range w.dice.roll(12) {
		c := container.Container{
			ID: w.id("found"), Name: names[w.dice.roll(len(names))], State: container.State(w.dice.roll(4)),
			SandboxID:    w.sandboxes[w.dice.roll(len(w.sandboxes))].ID,
			RestartCount: n, Backoff: time.Duration(w.dice.roll(40)) * 10 * time.Second,
			Hash: []string{"img:1", "img:2", ""}[w.dice.roll(3)],
		}
		c.CreatedAt = w.now.Add(-time.Duration(w.dice.roll(200)-50) * time.Minute)
		if c.State != container.StateCreated {
			c.StartedAt = c.CreatedAt
		}
		if c.State == container.StateExited {
			c.FinishedAt = c.StartedAt.Add(time.Duration(w.dice.roll(200)-50) * time.Minute)
			c.ExitCode = int32(w.dice.roll(3))
			c.Reason = []string{"", "OOMKilled", "Unknown"}[w.dice.roll(3)]
		}
		w.containers = append(w.containers, c)
	}
}

func simulate(t *testing.T, data []byte) {
	w := &world{t: t, dice: &dice{data}, now: now}
	w.randomPod()
	if w.dice.roll(2) == 1 {
		w.randomState()
	}
	for range w.dice.roll(60) {
		w.sync(true)
		if t.Failed() {
			return
		}
		w.disturb()
	}
	w.settle()
}

// TestSimulation drives random pods on a random runtime with an agent that
// dies anywhere, then lets the world be calm and expects the pod in order.
func TestSimulation(t *testing.T) {
	for seed := range uint64(1500) {
		r := rand.New(rand.NewPCG(seed, 1))
		data := make([]byte, r.IntN(3000))
		for i := range data {
			data[i] = byte(r.Uint32())
		}
		if !t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) { simulate(t, data) }) {
			return
		}
	}
}

func FuzzSync(f *testing.F) {
	f.Add([]byte{})
	f.Add([]byte("a pod, a runtime and an agent that dies anywhere"))
	f.Fuzz(simulate)
}

// TestAgentDies kills the agent after every possible step of a pod's start,
// up to three times in a row. Whatever the runtime was told before stays:
// what runs goes on running, and nothing exists twice.
func TestAgentDies(t *testing.T) {
	const longest = 7 // steps in one plan of these pods, and one more
	pods := map[string]func() *v1.Pod{
		"always":     func() *v1.Pod { return basePod() },
		"never":      func() *v1.Pod { return never() },
		"with inits": func() *v1.Pod { return basePod(inits("i", "j")) },
		"sidecar":    func() *v1.Pod { return basePod(sidecars("s"), inits("i")) },
	}
	for name, p := range pods {
		for cuts := range longest * longest * longest {
			t.Run(fmt.Sprintf("%s/cut after %d, %d and %d steps", name, cuts%longest, cuts/longest%longest, cuts/longest/longest), func(t *testing.T) {
				w := &world{t: t, dice: &dice{}, pod: p(), now: now}
				died := map[int]int{0: cuts % longest, 2: cuts / longest % longest, 3: cuts / longest / longest}
				for round := range 12 {
					steps := w.steps(Sync(Input{Pod: w.pod, Observed: w.observe(), Now: w.now, Hash: hashOf}))
					if n, dies := died[round]; dies {
						steps = steps[:min(n, len(steps))]
					}
					before := w.runningIDs()
					for _, step := range steps {
						step()
					}
					after := w.runningIDs()
					for _, id := range before {
						if !slices.Contains(after, id) {
							t.Fatalf("%q was stopped", id)
						}
					}
					for i := range w.pod.Spec.InitContainers {
						if c := w.observe().Latest(w.pod.Spec.InitContainers[i].Name); c != nil && w.pod.Spec.InitContainers[i].RestartPolicy == nil {
							w.end(w.container(c.ID), 0, "Completed")
						}
					}
				}
				want := len(w.pod.Spec.InitContainers) + len(w.pod.Spec.Containers)
				if len(w.sandboxes) != 1 || len(w.containers) != want {
					t.Errorf("%d sandboxes and %d containers, want 1 and %d: %+v", len(w.sandboxes), len(w.containers), want, w.containers)
				}
			})
		}
	}
}

func (w *world) runningIDs() (ids []string) {
	for i := range w.containers {
		c := &w.containers[i]
		if c.State == container.StateRunning {
			ids = append(ids, c.ID)
		}
	}
	return ids
}
