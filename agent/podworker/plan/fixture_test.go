package plan

import (
	"cmp"
	"slices"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"

	"github.com/tinylet/tinylet/agent/container"
	"github.com/tinylet/tinylet/agent/pod"
)

// t0 is when the base pod's sandbox was made; now is an hour later.
var (
	t0  = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	now = t0.Add(time.Hour)
)

// hashOf stands in for the real hash: the image is all that changes here.
func hashOf(c *v1.Container) string { return c.Image }

// basePod restarts always and has two main containers, a and b.
func basePod(mutators ...func(*v1.Pod)) *v1.Pod {
	p := &v1.Pod{}
	p.Name, p.Namespace, p.UID = "web", "default", "uid-1"
	p.Spec.RestartPolicy = v1.RestartPolicyAlways
	p.Spec.Containers = []v1.Container{{Name: "a", Image: "img:1"}, {Name: "b", Image: "img:1"}}
	for _, m := range mutators {
		m(p)
	}
	return p
}

func policy(policy v1.RestartPolicy) func(*v1.Pod) {
	return func(p *v1.Pod) { p.Spec.RestartPolicy = policy }
}

func inits(names ...string) func(*v1.Pod) {
	return func(p *v1.Pod) {
		for _, n := range names {
			p.Spec.InitContainers = append(p.Spec.InitContainers, v1.Container{Name: n, Image: "img:1"})
		}
	}
}

func sidecars(names ...string) func(*v1.Pod) {
	always := v1.ContainerRestartPolicyAlways
	return func(p *v1.Pod) {
		for _, n := range names {
			p.Spec.InitContainers = append(p.Spec.InitContainers, v1.Container{Name: n, Image: "img:1", RestartPolicy: &always})
		}
	}
}

func ephemerals(names ...string) func(*v1.Pod) {
	return func(p *v1.Pod) {
		for _, n := range names {
			p.Spec.EphemeralContainers = append(p.Spec.EphemeralContainers, v1.EphemeralContainer{
				EphemeralContainerCommon: v1.EphemeralContainerCommon{Name: n, Image: "img:1"},
			})
		}
	}
}

// own gives a container its own restart policy and rules.
func own(name string, policy v1.ContainerRestartPolicy, rules ...v1.ContainerRestartRule) func(*v1.Pod) {
	return func(p *v1.Pod) {
		c, _ := pod.FindContainer(&p.Spec, name)
		c.RestartPolicy, c.RestartPolicyRules = &policy, rules
	}
}

func on(action v1.ContainerRestartRuleAction, codes ...int32) v1.ContainerRestartRule {
	return v1.ContainerRestartRule{Action: action, ExitCodes: &v1.ContainerRestartRuleOnExitCodes{
		Operator: v1.ContainerRestartRuleOnExitCodesOpIn, Values: codes,
	}}
}

const (
	restart    = v1.ContainerRestartRuleActionRestart
	restartAll = v1.ContainerRestartRuleActionRestartAllContainers
)

// startupProbed gives a container a startup probe.
func startupProbed(name string) func(*v1.Pod) {
	return func(p *v1.Pod) {
		c, _ := pod.FindContainer(&p.Spec, name)
		c.StartupProbe = &v1.Probe{}
	}
}

func image(name, image string) func(*v1.Pod) {
	return func(p *v1.Pod) {
		for _, list := range [][]v1.Container{p.Spec.InitContainers, p.Spec.Containers} {
			for i := range list {
				if list[i].Name == name {
					list[i].Image = image
				}
			}
		}
	}
}

func deadline(seconds int64) func(*v1.Pod) {
	return func(p *v1.Pod) { p.Spec.ActiveDeadlineSeconds = &seconds }
}

// observed builds an observation in the order that the runtime seam promises.
func observed(parts ...any) *container.Observed {
	o := &container.Observed{UID: "uid-1", Namespace: "default", Name: "web"}
	for _, part := range parts {
		switch part := part.(type) {
		case container.Sandbox:
			o.Sandboxes = append(o.Sandboxes, part)
		case container.Container:
			o.Containers = append(o.Containers, part)
		}
	}
	order(o)
	return o
}

func order(o *container.Observed) {
	slices.SortStableFunc(o.Sandboxes, func(a, b container.Sandbox) int {
		return cmp.Or(cmp.Compare(b.Attempt, a.Attempt), b.CreatedAt.Compare(a.CreatedAt))
	})
	slices.SortStableFunc(o.Containers, func(a, b container.Container) int {
		return cmp.Or(cmp.Compare(b.RestartCount, a.RestartCount), b.CreatedAt.Compare(a.CreatedAt))
	})
}

func ready(id string, attempt uint32) container.Sandbox {
	return container.Sandbox{ID: id, Attempt: attempt, Ready: true, CreatedAt: t0, IPs: []string{"10.0.0.2"}}
}

func notReady(id string, attempt uint32) container.Sandbox {
	return container.Sandbox{ID: id, Attempt: attempt, CreatedAt: t0}
}

// one is a container in sandbox s0; its ID is name-count.
func one(id, name string, state container.State, mutators ...func(*container.Container)) container.Container {
	c := container.Container{ID: id, Name: name, SandboxID: "s0", State: state, CreatedAt: t0, Hash: "img:1"}
	if state != container.StateCreated {
		c.StartedAt = now.Add(-time.Minute)
	}
	if state == container.StateExited {
		c.FinishedAt, c.Reason = now.Add(-time.Second), "Completed"
	}
	for _, m := range mutators {
		m(&c)
	}
	return c
}

func running(id, name string, m ...func(*container.Container)) container.Container {
	return one(id, name, container.StateRunning, m...)
}

func created(id, name string, m ...func(*container.Container)) container.Container {
	return one(id, name, container.StateCreated, m...)
}

func unknown(id, name string, m ...func(*container.Container)) container.Container {
	return one(id, name, container.StateUnknown, m...)
}

func exited(id, name string, code int32, m ...func(*container.Container)) container.Container {
	c := one(id, name, container.StateExited)
	c.ExitCode = code
	if code != 0 {
		c.Reason = "Error"
	}
	for _, f := range m {
		f(&c)
	}
	return c
}

func in(sandboxID string) func(*container.Container) {
	return func(c *container.Container) { c.SandboxID = sandboxID }
}

func count(n int) func(*container.Container) {
	return func(c *container.Container) { c.RestartCount = n }
}

func backoff(d time.Duration) func(*container.Container) {
	return func(c *container.Container) { c.Backoff = d }
}

func reason(r string) func(*container.Container) {
	return func(c *container.Container) { c.Reason = r }
}

// ran sets start and end relative to now.
func ran(start, end time.Duration) func(*container.Container) {
	return func(c *container.Container) { c.StartedAt, c.FinishedAt = now.Add(start), now.Add(end) }
}

// starts, kills and so on say what is expected, in a short form.
func start(name string, count int, backoff time.Duration) Start {
	return Start{Container: &v1.Container{Name: name}, Kind: pod.Main, RestartCount: count, Backoff: backoff}
}

func startInit(name string, count int, backoff time.Duration) Start {
	s := start(name, count, backoff)
	s.Kind = pod.Init
	return s
}

func startEphemeral(name string) Start {
	s := start(name, 0, 0)
	s.Kind = pod.Ephemeral
	return s
}

func existing(s Start, id string) Start {
	s.Existing = id
	return s
}

func kill(id, name, message string) Kill {
	return Kill{
		ID: id, Name: name, Message: message,
		Grace: 30 * time.Second, Container: &v1.Container{Name: name},
	}
}

// byName compares containers of the spec by name.
var byName = gocmp.Comparer(func(a, b *v1.Container) bool {
	return a == b || a != nil && b != nil && a.Name == b.Name
})

func diff(t *testing.T, want, got Actions) {
	t.Helper()
	if d := gocmp.Diff(want, got, byName); d != "" {
		t.Errorf("actions (-want +got):\n%s", d)
	}
}
