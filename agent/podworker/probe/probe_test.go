package probe

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tinylet/tinylet/agent/container"
	"github.com/tinylet/tinylet/agent/pod"
	"github.com/tinylet/tinylet/agent/podworker/handler"
)

const second = time.Second

// TestFirstRuns checks when the probes of a new container run, and how often.
func TestFirstRuns(t *testing.T) {
	cases := []struct {
		name    string
		change  func(c *v1.Container)
		command string
		within  time.Duration
		want    []time.Duration
	}{
		{"readiness at once", func(c *v1.Container) { c.ReadinessProbe = execProbe("r") }, "r", 25 * second, []time.Duration{0, 10 * second, 20 * second}},
		{"readiness delayed", func(c *v1.Container) { c.ReadinessProbe = execProbe("r", delay(15)) }, "r", 26 * second, []time.Duration{15 * second, 25 * second}},
		{"liveness after a period", func(c *v1.Container) { c.LivenessProbe = execProbe("l", period(3)) }, "l", 7 * second, []time.Duration{3 * second, 6 * second}},
		{"liveness delayed", func(c *v1.Container) { c.LivenessProbe = execProbe("l", delay(1)) }, "l", 12 * second, []time.Duration{1 * second, 11 * second}},
		{"startup soon, and once", func(c *v1.Container) { c.StartupProbe = execProbe("s") }, "s", 60 * second, []time.Duration{1 * second}},
		{"defaults", func(c *v1.Container) {
			c.ReadinessProbe = &v1.Probe{ProbeHandler: v1.ProbeHandler{Exec: &v1.ExecAction{Command: []string{"r"}}}}
		}, "r", 11 * second, []time.Duration{0, 10 * second}},
		{"largest numbers", func(c *v1.Container) {
			c.ReadinessProbe = execProbe("r", period(1<<31-1), failures(1<<31-1), delay(1))
		}, "r", time.Hour, []time.Duration{1 * second}},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			inLab(t, func(l *lab) {
				l.start(podOf(tc.change), "web", "c1")
				l.pass(tc.within)
				if diff := cmp.Diff(tc.want, l.exec.of(tc.command)); diff != "" {
					t.Errorf("runs (-want +got):\n%s", diff)
				}
			})
		})
	}
}

// TestReadiness walks a readiness probe over its thresholds.
func TestReadiness(t *testing.T) {
	inLab(t, func(l *lab) {
		p := podOf(func(c *v1.Container) {
			c.ReadinessProbe = execProbe("r", func(p *v1.Probe) { p.SuccessThreshold = 2 })
		})
		l.start(p, "web", "c1")
		l.has("c1", true, false, "")
		l.pass(5 * second) // one success of two
		l.has("c1", true, false, "")
		l.pass(10 * second)
		l.has("c1", true, true, "")
		l.exec.answer("r", answer{code: 1})
		l.pass(20 * second) // two failures of three
		l.has("c1", true, true, "")
		l.exec.answer("r", answer{})
		l.pass(10 * second) // a success between them
		l.exec.answer("r", answer{code: 1})
		l.pass(20 * second)
		l.has("c1", true, true, "")
		l.pass(10 * second)
		l.has("c1", true, false, "")
		if n := l.changes("uid"); n != 2 {
			t.Errorf("Changed was called %d times, want 2", n)
		}
		if diff := cmp.Diff([]string{"Unhealthy: Readiness probe failed: out of r"}, l.messages()); diff != "" {
			t.Errorf("events (-want +got):\n%s", diff)
		}
	})
}

// TestLiveness checks that a failed container is left alone until there is a
// new one.
func TestLiveness(t *testing.T) {
	inLab(t, func(l *lab) {
		grace := int64(5)
		p := podOf(func(c *v1.Container) {
			c.LivenessProbe = execProbe("l", failures(2))
			c.LivenessProbe.TerminationGracePeriodSeconds = &grace
		})
		l.start(p, "web", "c1")
		l.has("c1", true, true, "")
		l.exec.answer("l", answer{code: 1})
		l.pass(11 * second)
		l.has("c1", true, true, "")
		l.pass(10 * second)
		l.has("c1", true, true, "Liveness")
		want := pod.ProbeResult{Started: true, Ready: true, Failed: "Liveness", Grace: &grace}
		if diff := cmp.Diff(want, l.Results("uid")["c1"]); diff != "" {
			t.Errorf("result (-want +got):\n%s", diff)
		}
		l.pass(time.Minute)
		l.Observe(p, running(l.begun, "web", "c1"))
		l.has("c1", true, true, "Liveness")
		if n := len(l.exec.of("l")); n != 2 {
			t.Errorf("%d runs, want 2: a failed container is not probed again", n)
		}
		l.Observe(p, running(time.Now(), "web", "c2"))
		l.has("c2", true, true, "")
		if _, ok := l.Results("uid")["c1"]; ok {
			t.Error("the old container still has a result")
		}
		l.pass(11 * second)
		if n := len(l.exec.of("l")); n != 3 {
			t.Errorf("%d runs, want 3: the new container is probed", n)
		}
	})
}

// TestStartup checks that the other probes wait for the startup probe.
func TestStartup(t *testing.T) {
	all := func(c *v1.Container) {
		c.StartupProbe = execProbe("s", period(5))
		c.ReadinessProbe = execProbe("r", period(30))
		c.LivenessProbe = execProbe("l", period(8), delay(2))
	}
	t.Run("succeeds", func(t *testing.T) {
		inLab(t, func(l *lab) {
			l.exec.answer("s", answer{code: 1})
			l.start(podOf(all), "web", "c1")
			l.pass(8 * second) // failures at 1 and 6
			l.has("c1", false, false, "")
			l.exec.answer("s", answer{})
			l.pass(4 * second)
			l.has("c1", true, true, "")
			l.pass(20 * second)
			for command, want := range map[string][]time.Duration{
				"s": {1 * second, 6 * second, 11 * second},
				"r": {11 * second},
				"l": {18 * second, 26 * second},
			} {
				if diff := cmp.Diff(want, l.exec.of(command)); diff != "" {
					t.Errorf("runs of %s (-want +got):\n%s", command, diff)
				}
			}
		})
	})
	t.Run("fails", func(t *testing.T) {
		inLab(t, func(l *lab) {
			l.exec.answer("s", answer{code: 1})
			l.start(podOf(all), "web", "c1")
			l.pass(12 * second)
			l.has("c1", false, false, "Startup")
			l.pass(time.Minute)
			if n := len(l.exec.calls); n != 3 {
				t.Errorf("%d runs, want only 3 of the startup probe", n)
			}
		})
	})
	t.Run("without readiness", func(t *testing.T) {
		inLab(t, func(l *lab) {
			l.start(podOf(func(c *v1.Container) { c.StartupProbe = execProbe("s") }), "web", "c1")
			l.has("c1", false, false, "")
			l.pass(2 * second)
			l.has("c1", true, true, "")
		})
	})
}

// TestHung checks that a target that never answers delays nobody, is bounded
// by its timeout and counts as failed.
func TestHung(t *testing.T) {
	inLab(t, func(l *lab) {
		l.exec.answer("hung", answer{hang: true})
		p := podOf(func(c *v1.Container) {
			c.LivenessProbe = execProbe("hung", period(1), failures(2))
			c.ReadinessProbe = execProbe("r", period(1))
		})
		l.start(p, "web", "c1")
		l.pass(10*second + second/2)
		if got := l.exec.of("r"); len(got) != 11 || got[10] != 10*second {
			t.Errorf("runs beside the hung probe: %v, want one each second", got)
		}
		// In flight from 1 to 4 and, at once again, to 7.
		if diff := cmp.Diff([]time.Duration{1 * second, 4 * second}, l.exec.of("hung")); diff != "" {
			t.Errorf("runs of the hung probe (-want +got):\n%s", diff)
		}
		l.has("c1", true, true, "Liveness")
		want := `Unhealthy: Liveness probe failed: command timed out: "hung" timed out after 1s`
		if got := l.messages(); !slices.Contains(got, want) {
			t.Errorf("events %q, want %q", got, want)
		}
	})
}

// TestSlowKeepsGrid checks that a run of more than a period does not move the
// ones after it.
func TestSlowKeepsGrid(t *testing.T) {
	inLab(t, func(l *lab) {
		p := podOf(func(c *v1.Container) {
			c.ReadinessProbe = execProbe("r", period(2), func(p *v1.Probe) { p.TimeoutSeconds = 30 })
		})
		l.exec.answer("r", answer{took: 5 * second})
		l.start(p, "web", "c1")
		l.pass(6 * second)
		l.exec.answer("r", answer{})
		l.pass(7 * second)
		want := []time.Duration{0, 5 * second, 10 * second, 12 * second}
		if diff := cmp.Diff(want, l.exec.of("r")); diff != "" {
			t.Errorf("runs (-want +got):\n%s", diff)
		}
	})
}

// TestCannotRun checks that a probe that could not be run counts for nothing
// and is tried three times.
func TestCannotRun(t *testing.T) {
	inLab(t, func(l *lab) {
		p := podOf(func(c *v1.Container) { c.LivenessProbe = execProbe("l", failures(1)) })
		l.exec.answer("l", answer{err: container.ErrUnavailable})
		l.start(p, "web", "c1")
		l.pass(25 * second)
		l.has("c1", true, true, "")
		if n := len(l.exec.of("l")); n != 6 {
			t.Errorf("%d tries, want 3 for each of two runs", n)
		}
		want := []string{"Unhealthy: Liveness probe errored and resulted in unknown state: container runtime is not reachable"}
		if diff := cmp.Diff(want, l.messages()); diff != "" {
			t.Errorf("events (-want +got):\n%s", diff)
		}
	})
}

// TestTerminating checks that only readiness goes on in a pod that ends.
func TestTerminating(t *testing.T) {
	ends := map[string]func(l *lab, p *v1.Pod){
		"told": func(l *lab, p *v1.Pod) { l.StopLivenessAndStartup(p.UID) },
		"deleted": func(l *lab, p *v1.Pod) {
			deleted := p.DeepCopy()
			deleted.DeletionTimestamp = &metav1.Time{Time: time.Now()}
			l.Observe(deleted, running(l.begun, "web", "c1"))
		},
	}
	for name, end := range ends {
		t.Run(name, func(t *testing.T) {
			inLab(t, func(l *lab) {
				p := podOf(func(c *v1.Container) {
					c.LivenessProbe = execProbe("l", failures(1))
					c.ReadinessProbe = execProbe("r", failures(1))
				})
				l.start(p, "web", "c1")
				l.pass(5 * second)
				l.has("c1", true, true, "")
				end(l, p)
				l.exec.answer("l", answer{code: 1})
				l.exec.answer("r", answer{code: 1})
				l.pass(10 * second)
				l.has("c1", true, false, "")
				if n := len(l.exec.of("l")); n != 0 {
					t.Errorf("%d liveness runs in a pod that ends", n)
				}
				l.Observe(p, &container.Observed{UID: "uid"})
				l.pass(time.Minute)
				if n := len(l.exec.of("r")); n != 2 || l.Results("uid") != nil {
					t.Errorf("%d readiness runs and %v after the container's end", n, l.Results("uid"))
				}
				l.RemovePod("uid")
				if len(l.pods) != 0 || len(l.queue) != 0 {
					t.Error("something is left of a forgotten pod")
				}
			})
		})
	}
}

// TestEndInFlight checks that a flight ends with its container, without a
// result or an event.
func TestEndInFlight(t *testing.T) {
	inLab(t, func(l *lab) {
		p := podOf(func(c *v1.Container) {
			c.LivenessProbe = execProbe("l", failures(1), func(p *v1.Probe) { p.TimeoutSeconds = 60 })
		})
		l.exec.answer("l", answer{hang: true})
		l.start(p, "web", "c1")
		l.pass(15 * second)
		l.Observe(p, &container.Observed{UID: "uid"})
		l.pass(second)
		if l.exec.flying["l"] != 0 {
			t.Error("the flight goes on")
		}
		if got := l.messages(); len(got) != 0 || l.changes("uid") != 0 {
			t.Errorf("a cancelled flight gave events %q and %d changes", got, l.changes("uid"))
		}
	})
}

// TestUnknownState checks that a container in the runtime's state unknown keeps
// its result.
func TestUnknownState(t *testing.T) {
	inLab(t, func(l *lab) {
		p := podOf(func(c *v1.Container) { c.ReadinessProbe = execProbe("r") })
		l.start(p, "web", "c1")
		l.pass(second)
		o := running(l.begun, "web", "c1")
		o.Containers[0].State = container.StateUnknown
		l.Observe(p, o)
		l.has("c1", true, true, "")
		o = running(l.begun, "web", "c1")
		o.Containers[0].State = container.StateExited
		l.Observe(p, o)
		if got := l.Results("uid"); got != nil {
			t.Errorf("results of an exited container: %v", got)
		}
	})
}

// TestWhichContainers checks which containers are probed.
func TestWhichContainers(t *testing.T) {
	inLab(t, func(l *lab) {
		always := v1.ContainerRestartPolicyAlways
		p := podOf(func(*v1.Container) {})
		l.start(p, "web", "c1")
		if l.Results("uid") != nil || len(l.pods) != 0 {
			t.Error("something is kept of a pod without probes")
		}
		p = podOf(func(*v1.Container) {})
		p.Spec.InitContainers = []v1.Container{
			{Name: "once", ReadinessProbe: execProbe("once")},
			{Name: "side", StartupProbe: execProbe("side", failures(1)), RestartPolicy: &always},
		}
		l.exec.answer("side", answer{code: 1})
		l.start(p, "web", "c1", "once", "i1", "side", "i2")
		l.pass(2 * second)
		l.has("i2", false, false, "Startup")
		if got := l.Results("uid"); len(got) != 1 || got["i2"].Failed != "Startup" {
			t.Errorf("results %v", got)
		}
	})
}

// TestMessages checks the words of events.
func TestMessages(t *testing.T) {
	long := strings.Repeat("ü", 4096)
	cases := []struct {
		name   string
		result handler.Result
		err    error
		want   string
	}{
		{"failure", handler.Result{Status: handler.Failure, Output: "no"}, nil, "Unhealthy: Liveness probe failed: no"},
		{"warning", handler.Result{Status: handler.Warning, Output: "hm"}, nil, "ProbeWarning: Liveness probe warning: hm"},
		{"broken body", handler.Result{Status: handler.Failure}, errors.New("oh"), "Unhealthy: Liveness probe errored and resulted in failure state: oh"},
		{"not UTF-8", handler.Result{Status: handler.Failure, Output: "a\xffb"}, nil, "Unhealthy: Liveness probe failed: a\uFFFDb"},
		{"too long", handler.Result{Status: handler.Failure, Output: long}, nil, "Unhealthy: Liveness probe failed: " + long[:998] + "..."},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			inLab(t, func(l *lab) {
				p := podOf(func(c *v1.Container) { c.LivenessProbe = execProbe("l") })
				l.recordEvent(&checkRun{check: &check{kind: liveness}, pod: p}, tc.result, tc.err)
				if diff := cmp.Diff([]string{tc.want}, l.messages()); diff != "" {
					t.Errorf("events (-want +got):\n%s", diff)
				}
			})
		})
	}
}
