package probe

import (
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/tinylet/tinylet/agent/container"
	"github.com/tinylet/tinylet/agent/pod"
)

// TestRestartKeepsState checks that a container is after a restart of the agent
// what it was before, until a probe decides otherwise.
func TestRestartKeepsState(t *testing.T) {
	startup := func(c *v1.Container) { c.StartupProbe = execProbe("s", failures(30)) } // 300 s
	ready := func(c *v1.Container) { c.ReadinessProbe = execProbe("r") }
	slow := func(c *v1.Container) {
		c.ReadinessProbe = execProbe("r", period(30), func(p *v1.Probe) { p.TimeoutSeconds = 20 })
	}
	live := func(c *v1.Container) { c.LivenessProbe = execProbe("l") }
	both := func(c *v1.Container) { startup(c); ready(c) }
	cases := []struct {
		name      string
		container func(c *v1.Container)
		before    map[string]answer // of the first run of the agent
		lasts     time.Duration
		after     map[string]answer // of the second
		at        []check3
	}{
		{"ready with a startup probe of 300 s", both, nil, 20 * second, map[string]answer{"s": {code: 1}}, []check3{{0, true, true, ""}, {5 * second, true, true, ""}, {time.Minute, true, true, ""}}},
		{"not ready", ready, map[string]answer{"r": {code: 1}}, time.Hour, map[string]answer{"r": {hang: true}}, []check3{{0, true, false, ""}, {time.Minute, true, false, ""}}},
		{"not ready turns ready", ready, map[string]answer{"r": {code: 1}}, time.Hour, nil, []check3{{0, true, false, ""}, {11 * second, true, true, ""}}},
		{"ready turns unready after three failures", ready, nil, 25 * second, map[string]answer{"r": {code: 1}}, []check3{{0, true, true, ""}, {20 * second, true, true, ""}, {31 * second, true, false, ""}}},
		{"two failures count on", ready, map[string]answer{"r": {code: 1}}, 2 * second, map[string]answer{"r": {code: 1}}, []check3{{0, true, false, ""}}},
		{"slow probe under way, ready", slow, map[string]answer{"r": {took: 8 * second}}, 35 * second, map[string]answer{"r": {took: 8 * second}}, []check3{{0, true, true, ""}, {9 * second, true, true, ""}, {time.Minute, true, true, ""}}},
		{"slow probe under way, never ready", slow, map[string]answer{"r": {took: 8 * second}}, 4 * second, map[string]answer{"r": {took: 8 * second}}, []check3{{0, true, false, ""}, {7 * second, true, false, ""}, {11 * second, true, true, ""}}},
		{"still starting", both, map[string]answer{"s": {code: 1}}, 100 * second, map[string]answer{"s": {code: 1}}, []check3{{0, false, false, ""}, {190 * second, false, false, ""}, {202 * second, false, false, "Startup"}}},
		{"liveness failures count on", live, map[string]answer{"l": {code: 1}}, 25 * second, map[string]answer{"l": {code: 1}}, []check3{{0, true, true, ""}, {6 * second, true, true, "Liveness"}}},
		{"failed", live, map[string]answer{"l": {code: 1}}, 35 * second, nil, []check3{{0, true, true, "Liveness"}, {time.Minute, true, true, "Liveness"}}},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			inLab(t, func(l *lab) {
				p := podOf(tc.container)
				p.Annotations = map[string]string{pod.AnnotationSource: pod.SourceFile}
				answers := func(all map[string]answer) {
					for _, command := range []string{"s", "r", "l"} {
						l.exec.answer(command, all[command])
					}
				}
				answers(tc.before)
				begun := time.Now()
				l.start(p, "web", "c1")
				l.pass(tc.lasts)
				l.killed()
				answers(tc.after)
				l.again()
				l.Observe(p, running(begun, "web", "c1"))
				at := time.Duration(0)
				for _, c := range tc.at {
					l.pass(c.at - at)
					at = c.at
					l.has("c1", c.started, c.ready, c.failed)
				}
			})
		})
	}
}

// check3 is what is known of a container at a time.
type check3 struct {
	at             time.Duration
	started, ready bool
	failed         string
}

// TestSavedOfAnother checks that a saved state is used only for the same
// container in the same boot.
func TestSavedOfAnother(t *testing.T) {
	ready := func(c *v1.Container) { c.ReadinessProbe = execProbe("r", delay(30)) }
	for _, tc := range []struct {
		name   string
		change func(text string) string
		id     string
		ready  bool
	}{
		{"the same", func(s string) string { return s }, "c1", true},
		{"another boot", func(s string) string { return strings.Replace(s, `"boot"`, `"reboot"`, 1) }, "c1", false},
		{"another container", func(s string) string { return s }, "c2", false},
		{"another pod", func(s string) string { return strings.Replace(s, `"uid"`, `"other"`, 1) }, "c1", false},
		{"torn", func(s string) string { return s[:len(s)/2] }, "c1", false},
		{"another version", func(s string) string { return strings.Replace(s, `"version":1`, `"version":2`, 1) }, "c1", false},
		{"empty", func(string) string { return "" }, "c1", false},
		{"too large", func(s string) string { return s + strings.Repeat(" ", MaxSaved) }, "c1", false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			inLab(t, func(l *lab) {
				p := podOf(ready)
				l.start(p, "web", "c1")
				l.pass(40 * second)
				l.has("c1", true, true, "")
				l.killed()
				l.exec.answer("r", answer{hang: true})
				l.saved = []byte(tc.change(string(l.saved)))
				l.again()
				l.Observe(p, running(l.begun, "web", tc.id))
				l.has(tc.id, true, tc.ready, "")
			})
		})
	}
}

// TestRuntimeAnswersLate checks that the saved state is kept while the runtime
// does not report at first whether a container runs.
func TestRuntimeAnswersLate(t *testing.T) {
	inLab(t, func(l *lab) {
		p := podOf(func(c *v1.Container) { c.ReadinessProbe = execProbe("r") })
		l.start(p, "web", "c1")
		l.pass(5 * second)
		l.killed()
		l.again()
		o := running(l.begun, "web", "c1")
		o.Containers[0].State = container.StateUnknown
		l.Observe(p, o)
		l.pass(second)
		l.Observe(p, running(l.begun, "web", "c1"))
		l.has("c1", true, true, "")
	})
}

// TestAPITellsLater checks that a pod that comes from the journal first takes
// the status that the API server sends later.
func TestAPITellsLater(t *testing.T) {
	inLab(t, func(l *lab) {
		p := podOf(func(c *v1.Container) {
			c.StartupProbe = execProbe("s", failures(30))
			c.ReadinessProbe = execProbe("r", period(60))
		})
		l.exec.answer("s", answer{code: 1})
		l.exec.answer("r", answer{took: second / 2})
		o := running(l.begun.Add(-time.Minute), "web", "c1")
		l.Observe(p, o)
		l.has("c1", false, false, "")
		l.pass(second / 10)
		told := p.DeepCopy()
		yes := true
		told.Status.ContainerStatuses = []v1.ContainerStatus{{Name: "web", ContainerID: "containerd://c1", Started: &yes, Ready: true}}
		l.Observe(told, o)
		l.has("c1", true, true, "")
		l.pass(10 * time.Minute)
		l.has("c1", true, true, "")
		l.exec.answer("r", answer{code: 1})
		l.pass(10 * time.Minute)
		l.Observe(told.DeepCopy(), o) // an older status is no news
		l.has("c1", true, false, "")
	})
}

// TestSavesAreFew checks that probes which confirm a result save nothing, and
// that a failed save is retried.
func TestSavesAreFew(t *testing.T) {
	inLab(t, func(l *lab) {
		p := podOf(func(c *v1.Container) {
			c.ReadinessProbe = execProbe("r", period(1))
			c.LivenessProbe = execProbe("l", period(1))
		})
		l.start(p, "web", "c1")
		l.pass(10 * second)
		before := l.saveCount()
		if before == 0 || before > 3 {
			t.Errorf("%d saves for a container that became ready, want 1 to 3", before)
		}
		l.pass(time.Hour)
		if n := l.saveCount() - before; n != 0 {
			t.Errorf("%d saves in an hour in which nothing changed", n)
		}
		l.exec.answer("r", answer{code: 1})
		l.savesFail(errors.New("no room"))
		l.pass(time.Minute)
		l.savesFail(nil)
		l.exec.answer("r", answer{})
		l.pass(10 * second)
		l.killed()
		l.again()
		l.Observe(p, running(l.begun, "web", "c1"))
		l.has("c1", true, true, "")
		// What is gone is not kept for ever.
		l.RemovePod(p.UID)
		l.pass(2 * second)
		if s, err := decodeSaved(l.savedNow()); err != nil || len(s.Containers) != 0 {
			t.Errorf("saved after the pod is gone: %s, %v", l.saved, err)
		}
	})
}

// TestEarlierExpires checks that the state of containers that went while no
// agent ran is dropped.
func TestEarlierExpires(t *testing.T) {
	inLab(t, func(l *lab) {
		p := podOf(func(c *v1.Container) { c.ReadinessProbe = execProbe("r") })
		l.start(p, "web", "c1")
		l.pass(5 * second)
		l.killed()
		l.again()
		other := podOf(func(c *v1.Container) { c.ReadinessProbe = execProbe("q") })
		other.UID = "other"
		for _, tc := range []struct {
			after time.Duration
			want  int
		}{{time.Minute, 2}, {keepEarlier, 1}} {
			l.pass(tc.after)
			l.Observe(other, running(time.Now(), "web", "o"+tc.after.String()))
			l.pass(2 * second)
			if s, err := decodeSaved(l.savedNow()); err != nil || len(s.Containers) != tc.want {
				t.Errorf("after %v: saved %s, %v, want %d containers", tc.after, l.saved, err, tc.want)
			}
		}
	})
}

// FuzzSaved checks that no state that can be read makes New or Observe fail, and
// that a container is never ready without having started.
func FuzzSaved(f *testing.F) {
	f.Add([]byte(`{"version":1,"bootID":"boot","containers":[{"id":"c1","pod":"uid","started":true,"ready":true,"begun":1,"checks":[{"kind":"Readiness","last":true,"run":1,"due":9223372036854775807},{"kind":"Startup","off":true,"due":0}]}]}`))
	f.Add([]byte(`{"version":1,"bootID":"boot","containers":[{"id":"c1","pod":"uid","failed":"Startup","begun":9223372036854775807}]}`))
	f.Add([]byte(`{`))
	f.Fuzz(func(t *testing.T, data []byte) {
		s, err := decodeSaved(data)
		if err == nil && s == nil {
			t.Fatal("nothing, and no error")
		}
		inLab(t, func(l *lab) {
			l.killed()
			l.saved = data
			l.again()
			p := podOf(func(c *v1.Container) {
				c.StartupProbe, c.ReadinessProbe, c.LivenessProbe = execProbe("s"), execProbe("r"), execProbe("l")
			})
			l.Observe(p, running(l.begun, "web", "c1"))
			if r := l.Results("uid")["c1"]; r.Ready && !r.Started {
				t.Errorf("ready and not started: %+v", r)
			}
			l.pass(time.Minute)
			data, err := l.encode()
			if err != nil {
				t.Fatal(err)
			}
			if _, err := decodeSaved(data); err != nil {
				t.Fatalf("what was written cannot be read: %v: %s", err, data)
			}
			again, err := l.encode()
			if err != nil || !reflect.DeepEqual(data, again) {
				t.Errorf("written twice: %s and %s, %v", data, again, err)
			}
		})
	})
}

// TestRestartDuringTermination checks that the probes that a termination stopped run again
// if the pod runs on after a restart of the agent.
func TestRestartDuringTermination(t *testing.T) {
	inLab(t, func(l *lab) {
		p := podOf(func(c *v1.Container) { c.LivenessProbe, c.StartupProbe = execProbe("l"), execProbe("s") })
		l.exec.answer("l", answer{code: 1})
		l.start(p, "web", "c1")
		l.pass(15 * second)
		l.StopLivenessAndStartup(p.UID)
		l.pass(time.Minute)
		l.killed()
		l.again()
		l.Observe(p, running(l.begun, "web", "c1"))
		l.has("c1", true, true, "")
		l.pass(time.Minute)
		l.has("c1", true, true, "Liveness")
	})
}
