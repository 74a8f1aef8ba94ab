package probe

import (
	"fmt"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tinylet/tinylet/agent/pod"
)

// TestAdopted checks that a container that ran before the agent keeps its state
// until a probe changes it.
func TestAdopted(t *testing.T) {
	always := v1.ContainerRestartPolicyAlways
	api := func(started, ready bool) func(p *v1.Pod) {
		return func(p *v1.Pod) {
			p.Annotations = nil
			p.Status.ContainerStatuses = []v1.ContainerStatus{{Name: "web", ContainerID: "containerd://c1", Started: &started, Ready: ready}}
		}
	}
	static := func(p *v1.Pod) {
		yes := true
		p.Annotations = map[string]string{pod.AnnotationSource: pod.SourceFile}
		p.Status.ContainerStatuses = []v1.ContainerStatus{{Name: "web", ContainerID: "containerd://c1", Started: &yes, Ready: true}}
	}
	startup := func(c *v1.Container) { c.StartupProbe = execProbe("s") } // over after 30 s
	ready := func(c *v1.Container) { c.ReadinessProbe = execProbe("r", delay(20)) }
	both := func(c *v1.Container) { startup(c); ready(c) }
	cases := []struct {
		name                  string
		container             func(c *v1.Container)
		change                func(p *v1.Pod)
		age                   time.Duration
		started, ready        bool
		startupRuns, afterBad bool // readiness after one failed run of every probe
	}{
		{"remembered as ready", both, api(true, true), time.Hour, true, true, false, true},
		{"remembered as unready", both, api(true, false), time.Hour, true, false, false, false},
		{"remembered as not started", both, api(false, false), time.Hour, false, false, true, false},
		{"old enough to have started", both, static, time.Hour, true, false, false, false},
		{"may still start", both, static, 25 * second, false, false, true, false},
		{"only startup, old", startup, static, 30 * second, true, true, false, true},
		{"too young for readiness", ready, static, 5 * second, true, false, false, false},
		{"clock went back", ready, static, -time.Hour, true, false, false, false},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			inLab(t, func(l *lab) {
				p := podOf(tc.container)
				tc.change(p)
				for _, command := range []string{"s", "r"} {
					l.exec.answer(command, answer{code: 1})
				}
				l.Observe(p, running(time.Now().Add(-tc.age), "web", "c1"))
				l.has("c1", tc.started, tc.ready, "")
				l.pass(adoptWithin)
				if got := len(l.exec.of("s")) > 0; got != tc.startupRuns {
					t.Errorf("startup probe ran: %v, want %v", got, tc.startupRuns)
				}
				l.has("c1", tc.started, tc.afterBad, "")
			})
		})
	}
	t.Run("sidecar that others followed", func(t *testing.T) {
		inLab(t, func(l *lab) {
			p := podOf(func(*v1.Container) {})
			p.Annotations = map[string]string{pod.AnnotationSource: pod.SourceFile}
			p.Spec.InitContainers = []v1.Container{{Name: "side", StartupProbe: execProbe("s"), RestartPolicy: &always}}
			o := running(l.begun.Add(-5*second), "web", "c1", "side", "i1")
			o.Containers[1].StartedAt = l.begun.Add(-10 * second)
			l.Observe(p, o)
			l.has("i1", true, true, "")
		})
	})
}

// TestSpread checks that the probes of adopted pods do not stay together.
func TestSpread(t *testing.T) {
	inLab(t, func(l *lab) {
		const pods = 60
		for i := range pods {
			p := podOf(func(c *v1.Container) { c.ReadinessProbe = execProbe("r") })
			p.UID = types.UID(fmt.Sprintf("uid-%d", i))
			l.exec.answer("r", answer{})
			l.Observe(p, running(l.begun.Add(-time.Hour), "web", string(p.UID)))
		}
		l.pass(60 * second)
		l.exec.overlap = false // many pods have one command
		late := map[time.Duration]int{}
		for _, at := range l.exec.of("r") {
			if at > 40*second && at <= 50*second {
				late[at.Truncate(2*second)]++
			}
		}
		for from := 40 * second; from < 50*second; from += 2 * second {
			if late[from] == 0 || late[from] > pods/2 {
				t.Errorf("%d of %d probes within 2 s from %v", late[from], pods, from)
			}
		}
	})
}
