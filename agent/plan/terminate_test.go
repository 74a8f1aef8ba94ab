package plan

import (
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"

	"github.com/tinylet/tinylet/agent/container"
)

func TestTerminate(t *testing.T) {
	grace := func(seconds int64) func(*v1.Pod) {
		return func(p *v1.Pod) { p.Spec.TerminationGracePeriodSeconds = &seconds }
	}
	madeWith := func(d time.Duration) func(*container.Container) {
		return func(c *container.Container) { c.GracePeriod = d }
	}
	stop := func(id, name string, seconds int) Stop {
		return Stop{ID: id, Name: name, Grace: time.Duration(seconds) * time.Second}
	}
	for _, r := range []struct {
		name string
		pod  *v1.Pod
		seen *container.Observed
		want Termination
	}{
		{name: "nothing is known", pod: basePod(), want: Termination{}},
		{
			name: "containers stop at once, then every sandbox",
			pod:  basePod(grace(5)),
			seen: observed(ready("s1", 1), notReady("s0", 0), running("a0", "a"), unknown("b0", "b"), exited("a1", "a", 1, count(1)), created("c0", "c", count(1))),
			want: Termination{Stages: [][]Stop{{stop("a0", "a", 5), stop("b0", "b", 5)}}, Sandboxes: []string{"s1", "s0"}},
		},
		{
			name: "restartable init containers follow the main ones, last first",
			pod:  basePod(sidecars("s", "t"), inits("i")),
			seen: observed(ready("s0", 0), running("s-0", "s"), running("t-0", "t"), running("a0", "a"), running("i0", "i")),
			want: Termination{
				Stages:    [][]Stop{{stop("a0", "a", 30), stop("i0", "i", 30)}, {stop("t-0", "t", 30)}, {stop("s-0", "s", 30)}},
				Sandboxes: []string{"s0"},
			},
		},
		{
			name: "only a restartable init container is left",
			pod:  basePod(sidecars("s", "t")), seen: observed(running("s-0", "s")),
			want: Termination{Stages: [][]Stop{{stop("s-0", "s", 30)}}},
		},
		{
			name: "an unknown pod stops as its containers say",
			seen: observed(ready("s0", 0), running("a0", "a", madeWith(7*time.Second)), running("b0", "b", madeWith(-1)), running("c0", "c", madeWith(0))),
			want: Termination{Stages: [][]Stop{{stop("a0", "a", 7), stop("b0", "b", 30), stop("c0", "c", 0)}}, Sandboxes: []string{"s0"}},
		},
	} {
		t.Run(r.name, func(t *testing.T) {
			if d := gocmp.Diff(r.want, Terminate(r.pod, r.seen)); d != "" {
				t.Errorf("termination (-want +got):\n%s", d)
			}
		})
	}
}
