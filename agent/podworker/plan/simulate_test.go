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
	"github.com/tinylet/tinylet/agent/pod"
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
	probes     map[string]pod.ProbeResult
	once       map[string]bool // ephemeral containers that were started
	ids        int
}

func newWorld(t *testing.T, d *dice) *world {
	return &world{t: t, dice: d, now: now, probes: map[string]pod.ProbeResult{}, once: map[string]bool{}}
}

func (w *world) plan(seen *container.Observed) Actions {
	return Sync(Input{Pod: w.pod, Observed: seen, Now: w.now, Hash: hashOf, Probes: w.probes})
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
	if _, kind := pod.FindContainer(&w.pod.Spec, c.Name); kind == pod.Ephemeral {
		if w.once[c.Name] {
			w.t.Fatalf("start of %q, which ran before", id)
		}
		w.once[c.Name] = true
	}
	c.State, c.StartedAt = container.StateRunning, w.now
	w.probes[id] = pod.ProbeResult{Started: true}
	if spec, _ := pod.FindContainer(&w.pod.Spec, c.Name); spec.StartupProbe != nil {
		w.probes[id] = pod.ProbeResult{}
	}
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
	a := w.plan(seen)
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
		if w.kind(k.Name) == pod.Ephemeral && seen.Sandbox() != nil && byID[k.ID].SandboxID == seen.Sandbox().ID {
			w.t.Errorf("kills the ephemeral %q", k.ID)
		}
		killed[k.ID] = true
	}
	for _, id := range a.Remove {
		if byID[id] == nil || mayRun(byID[id]) {
			w.t.Errorf("removes %q, which may run", id)
		}
	}
	if a.Reset {
		w.lawfulReset(a, byID)
	}
	for _, s := range a.Start {
		name := s.Container.Name
		if s.Kind != w.kind(name) {
			w.t.Errorf("starts %s as what it is not", name)
		}
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

// lawfulReset checks that all init and main containers are removed, and of
// those that asked for it the last one last.
func (w *world) lawfulReset(a Actions, byID map[string]*container.Container) {
	for id, c := range byID {
		if w.kind(c.Name) != "" && w.kind(c.Name) != pod.Ephemeral && !slices.Contains(a.Remove, id) {
			w.t.Errorf("keeps %q of a pod that starts from the beginning", id)
		}
	}
	last := byID[a.Remove[len(a.Remove)-1]]
	if spec, _ := pod.FindContainer(&w.pod.Spec, last.Name); spec == nil || last.State != container.StateExited || !pod.RestartsAllContainers(spec, last.ExitCode) {
		w.t.Errorf("removes %q last, which did not ask for it", last.ID)
	}
	if len(a.Start)+len(a.Kill) > 0 {
		w.t.Errorf("starts or kills beside a reset: %+v", a)
	}
}

func (w *world) kind(name string) pod.ContainerType {
	_, kind := pod.FindContainer(&w.pod.Spec, name)
	return kind
}

// disturb lets something happen.
func (w *world) disturb() {
	w.now = w.now.Add(time.Duration(w.dice.roll(60)) * time.Second)
	for i := range w.containers {
		c := &w.containers[i]
		if c.State == container.StateRunning && w.dice.chance(30) {
			code := []int32{0, 1, 42}[w.dice.roll(3)]
			w.end(c, code, map[bool]string{true: "Completed", false: "Error"}[code == 0])
		}
		if c.State == container.StateRunning && w.dice.chance(30) {
			w.probes[c.ID] = []pod.ProbeResult{{}, {Started: true}, failed("Liveness"), failed("Startup")}[w.dice.roll(4)]
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

// calm lets init containers and, unless they restart always, the main ones
// come to a good end, and all probes pass.
func (w *world) calm() {
	for i := range w.containers {
		c := &w.containers[i]
		spec, kind := pod.FindContainer(&w.pod.Spec, c.Name)
		if spec == nil || kind == pod.Ephemeral {
			continue
		}
		w.probes[c.ID] = pod.ProbeResult{Started: true}
		if kind == pod.Init && !pod.IsRestartableInit(spec) || kind == pod.Main && !pod.ShouldRestart(&w.pod.Spec, spec, 0) {
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
	w.t.Errorf("did not settle: %+v\nin %+v", w.plan(w.observe()), w.observe())
}

// settled says whether the pod is done with nothing running, or each main
// container runs once from its present spec or is over, and each sidecar
// runs; and nothing is left over.
func (w *world) settled(a Actions) bool {
	runs, all := map[string]int{}, map[string]int{}
	for i := range w.containers {
		c := &w.containers[i]
		if mayRun(c) {
			runs[c.Name]++
		}
		if w.kind(c.Name) == "" {
			continue
		}
		all[c.Name]++
		if c.State == container.StateCreated {
			return false
		}
	}
	for name, n := range all {
		if n > 2 && w.kind(name) != pod.Ephemeral {
			return false
		}
	}
	if a.Done {
		return len(runs) == 0
	}
	for c, kind := range pod.Containers(&w.pod.Spec) {
		latest := w.observe().Latest(c.Name)
		switch {
		case kind == pod.Main && runs[c.Name] != 1 && (latest == nil || restartsAfter(w.pod, c, latest)):
			return false
		case kind == pod.Init && pod.IsRestartableInit(c) && runs[c.Name] != 1:
			return false
		case kind == pod.Ephemeral && latest == nil:
			return false
		}
	}
	return true
}

func (w *world) randomPod() {
	policies := []v1.RestartPolicy{v1.RestartPolicyAlways, v1.RestartPolicyOnFailure, v1.RestartPolicyNever}
	w.pod = basePod(policy(policies[w.dice.roll(3)]))
	if w.dice.chance(20) {
		sidecars("s")(w.pod)
		if w.dice.chance(50) {
			startupProbed("s")(w.pod)
		}
	}
	inits([]string{"i", "j"}[:w.dice.roll(3)]...)(w.pod)
	if w.dice.chance(20) {
		sidecars("t")(w.pod)
	}
	if w.dice.chance(20) {
		ephemerals("e")(w.pod)
	}
	own := []v1.ContainerRestartPolicy{v1.ContainerRestartPolicyAlways, v1.ContainerRestartPolicyOnFailure, v1.ContainerRestartPolicyNever}
	for c, kind := range pod.Containers(&w.pod.Spec) {
		if kind == pod.Ephemeral || !w.dice.chance(20) {
			continue
		}
		if !pod.IsRestartableInit(c) {
			policy := own[w.dice.roll(3)]
			if kind == pod.Init {
				policy = v1.ContainerRestartPolicyNever
			}
			c.RestartPolicy = &policy
		}
		c.RestartPolicyRules = []v1.ContainerRestartRule{on([]v1.ContainerRestartRuleAction{restart, restartAll}[w.dice.roll(2)], 42)}
	}
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
	names := []string{"a", "b", "i", "j", "s", "t", "e"}
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
			c.ExitCode = []int32{0, 1, 42}[w.dice.roll(3)]
			c.Reason = []string{"", "OOMKilled", "Unknown"}[w.dice.roll(3)]
		}
		w.once[c.Name] = w.once[c.Name] || c.State != container.StateCreated
		w.containers = append(w.containers, c)
	}
}

func simulate(t *testing.T, data []byte) {
	w := newWorld(t, &dice{data})
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
// dies anywhere. Then faults end, and the pod must reach its desired state.
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
// up to three times in a row. Completed runtime calls keep their effect:
// running containers keep running, and nothing exists twice.
func TestAgentDies(t *testing.T) {
	const longest = 8 // steps in one plan of these pods, and one more
	pods := map[string]func() *v1.Pod{
		"always":     func() *v1.Pod { return basePod() },
		"never":      func() *v1.Pod { return never() },
		"with inits": func() *v1.Pod { return basePod(inits("i", "j")) },
		"sidecar":    func() *v1.Pod { return basePod(sidecars("s"), startupProbed("s"), inits("i"), ephemerals("e")) },
	}
	for name, p := range pods {
		for cuts := range longest * longest * longest {
			t.Run(fmt.Sprintf("%s/cut after %d, %d and %d steps", name, cuts%longest, cuts/longest%longest, cuts/longest/longest), func(t *testing.T) {
				w := newWorld(t, &dice{})
				w.pod = p()
				died := map[int]int{0: cuts % longest, 2: cuts / longest % longest, 3: cuts / longest / longest}
				for round := range 12 {
					steps := w.steps(w.plan(w.observe()))
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
					for id := range w.probes {
						w.probes[id] = pod.ProbeResult{Started: true}
					}
				}
				want := len(w.pod.Spec.InitContainers) + len(w.pod.Spec.Containers) + len(w.pod.Spec.EphemeralContainers)
				if len(w.sandboxes) != 1 || len(w.containers) != want {
					t.Errorf("%d sandboxes and %d containers, want 1 and %d: %+v", len(w.sandboxes), len(w.containers), want, w.containers)
				}
			})
		}
	}
}

// TestAgentDiesInReset kills the agent up to twice at every step in which all
// containers of a pod are restarted: in the end each was restarted once, in the
// same sandbox, and ephemeral containers are not affected.
func TestAgentDiesInReset(t *testing.T) {
	const longest = 9
	for _, source := range []string{"a", "s"} {
		for cuts := range longest * longest * 3 {
			first, second, round := cuts%longest, cuts/longest%longest, 1+cuts/longest/longest
			t.Run(fmt.Sprintf("%s asks, cut after %d steps, and in round %d after %d", source, first, round, second), func(t *testing.T) {
				w := newWorld(t, &dice{})
				w.pod = never(inits("i"), sidecars("s"), ephemerals("e"))
				spec, _ := pod.FindContainer(&w.pod.Spec, source)
				spec.RestartPolicyRules = []v1.ContainerRestartRule{on(restartAll, 42)}
				if source == "a" {
					spec.RestartPolicy = new(v1.ContainerRestartPolicyNever)
				}
				w.containers = observed(exited("i0", "i", 0), running("s0", "s"), running("a1", "a", count(1)), exited("a0", "a", 42), running("b0", "b"), running("e0", "e")).Containers
				w.end(w.container(map[string]string{"a": "a1", "s": "s0"}[source]), 42, "Error")
				w.sandboxes = []container.Sandbox{ready("s0", 0)}
				w.once["e"] = true
				w.resetRounds(map[int]int{0: first, round: second})
				running := w.runningIDs()
				if len(w.containers) != 5 || len(running) != 4 || !slices.Contains(running, "e0") || slices.Contains(running, "b0") || slices.Contains(running, "s0") {
					t.Errorf("in the end %v run of %+v", running, w.containers)
				}
			})
		}
	}
}

// resetRounds lets the agent plan and act while init containers end well. It
// dies in the rounds given, after so many steps.
func (w *world) resetRounds(died map[int]int) {
	for n := range 12 {
		w.now = w.now.Add(time.Second)
		seen := w.observe()
		a := w.plan(seen)
		w.lawful(a, seen)
		steps := w.steps(a)
		if n, dies := died[n]; dies {
			steps = steps[:min(n, len(steps))]
		}
		for _, step := range steps {
			step()
		}
		if i := w.observe().Latest("i"); i != nil {
			w.end(w.container(i.ID), 0, "Completed")
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
