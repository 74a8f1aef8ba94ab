package probe

import (
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"

	"github.com/tinylet/tinylet/agent/container"
	"github.com/tinylet/tinylet/agent/pod"
)

// row is a Count that can be compared.
type row struct {
	Kind, Container           string
	Successful, Failed, Timed uint64
}

func (l *lab) counts() []row {
	l.t.Helper()
	var out []row
	for _, c := range l.Counts() {
		if c.Pod != (pod.Ref{UID: "uid", Namespace: "default", Name: "p"}) {
			l.t.Errorf("of pod %+v", c.Pod)
		}
		r := row{Kind: c.Kind, Container: c.Container, Successful: c.Successful, Failed: c.Failed}
		if c.Durations != nil {
			r.Timed = c.Durations.Count()
		}
		out = append(out, r)
	}
	slices.SortFunc(out, func(a, b row) int { return strings.Compare(a.Kind+a.Container, b.Kind+b.Container) })
	return out
}

func TestCounts(t *testing.T) {
	inLab(t, func(l *lab) {
		p := podOf(func(c *v1.Container) {
			c.StartupProbe, c.LivenessProbe, c.ReadinessProbe = execProbe("s"), execProbe("l"), execProbe("r")
		})
		l.start(p, "web", "c1")
		if got := l.counts(); got != nil {
			t.Errorf("before any probe: %+v", got)
		}
		l.exec.answer("r", answer{code: 1})
		l.pass(25 * second)
		want := []row{{"Liveness", "web", 2, 0, 2}, {"Readiness", "web", 0, 3, 0}, {"Startup", "web", 1, 0, 1}}
		if diff := cmp.Diff(want, l.counts()); diff != "" {
			t.Errorf("counts (-want +got):\n%s", diff)
		}

		// A probe that cannot be run counts for nothing.
		l.exec.answer("r", answer{err: errors.New("no such command")})
		l.exec.answer("l", answer{err: errors.New("no such command")})
		l.pass(30 * second)
		if diff := cmp.Diff(want, l.counts()); diff != "" {
			t.Errorf("counts after what cannot be run (-want +got):\n%s", diff)
		}

		// The next container's probes count on.
		l.exec.answer("r", answer{})
		l.Observe(p, running(time.Now(), "web", "c2"))
		l.pass(2 * second)
		want[1] = row{"Readiness", "web", 1, 3, 1}
		want[2].Successful, want[2].Timed = 2, 2
		if diff := cmp.Diff(want, l.counts()); diff != "" {
			t.Errorf("counts of the next container (-want +got):\n%s", diff)
		}
		l.StopLivenessAndStartup("uid")
		if diff := cmp.Diff(want, l.counts()); diff != "" {
			t.Errorf("counts of a pod that goes (-want +got):\n%s", diff)
		}
		l.RemovePod("uid")
		if got := l.counts(); got != nil {
			t.Errorf("a pod that is gone has %+v", got)
		}
		l.StopLivenessAndStartup("never probed")
		if got := l.counts(); got != nil {
			t.Errorf("a pod without probes has %+v", got)
		}
	})
}

// What was handed out does not change, and may be read while probes run.
func TestCountsWhileProbesRun(t *testing.T) {
	inLab(t, func(l *lab) {
		l.start(podOf(func(c *v1.Container) { c.ReadinessProbe = execProbe("r", period(1)) }), "web", "c1")
		var wg sync.WaitGroup
		for range 3 {
			wg.Go(func() {
				for range 20 {
					for _, c := range l.Counts() {
						if c.Durations.Count() != c.Successful {
							t.Errorf("%+v", c)
						}
					}
					time.Sleep(second / 2)
				}
			})
		}
		wg.Wait()
		l.Observe(podOf(func(*v1.Container) {}), &container.Observed{})
	})
}
