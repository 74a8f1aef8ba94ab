package plan

import (
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"

	"github.com/tinylet/tinylet/agent/container"
	"github.com/tinylet/tinylet/agent/pod"
)

// hook asks for path.
func hook(path string) *v1.LifecycleHandler {
	return &v1.LifecycleHandler{HTTPGet: &v1.HTTPGetAction{Path: path}}
}

func TestTerminate(t *testing.T) {
	grace := func(seconds int64) func(*v1.Pod) {
		return func(p *v1.Pod) { p.Spec.TerminationGracePeriodSeconds = &seconds }
	}
	madeWith := func(d time.Duration) func(*container.Container) {
		return func(c *container.Container) { c.GracePeriod = d }
	}
	stop := func(id, name string, seconds int) Kill {
		return Kill{ID: id, Name: name, Message: "Stopping container " + name, Grace: time.Duration(seconds) * time.Second, Container: &v1.Container{Name: name}}
	}
	specless := func(s Kill) Kill {
		s.Container = nil
		return s
	}
	hooked := func(s Kill, path string) Kill {
		s.PreStop = hook(path)
		return s
	}
	made := func(path string) func(*container.Container) {
		return func(c *container.Container) { c.PreStop = hook(path) }
	}
	preStop := func(name, path string) func(*v1.Pod) {
		return func(p *v1.Pod) {
			c, _ := pod.FindContainer(&p.Spec, name)
			c.Lifecycle = &v1.Lifecycle{PreStop: hook(path)}
		}
	}
	deletion := func(seconds int64) func(*v1.Pod) {
		return func(p *v1.Pod) { p.DeletionGracePeriodSeconds = &seconds }
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
			want: Termination{Stages: [][]Kill{{stop("a0", "a", 5), stop("b0", "b", 5)}}, Sandboxes: []string{"s1", "s0"}},
		},
		{
			name: "restartable init containers follow the main ones, last first",
			pod:  basePod(sidecars("s", "t"), inits("i")),
			seen: observed(ready("s0", 0), running("s-0", "s"), running("t-0", "t"), running("a0", "a"), running("i0", "i")),
			want: Termination{
				Stages:    [][]Kill{{stop("a0", "a", 30), stop("i0", "i", 30)}, {stop("t-0", "t", 30)}, {stop("s-0", "s", 30)}},
				Sandboxes: []string{"s0"},
			},
		},
		{
			name: "only a restartable init container is left",
			pod:  basePod(sidecars("s", "t")), seen: observed(running("s-0", "s")),
			want: Termination{Stages: [][]Kill{{stop("s-0", "s", 30)}}},
		},
		{
			name: "an unknown pod stops as its containers say",
			seen: observed(ready("s0", 0), running("a0", "a", madeWith(7*time.Second)), running("b0", "b", madeWith(-1)), running("c0", "c", madeWith(0))),
			want: Termination{Stages: [][]Kill{{specless(stop("a0", "a", 7)), specless(stop("b0", "b", 30)), specless(stop("c0", "c", 0))}}, Sandboxes: []string{"s0"}},
		},
		{
			name: "an unknown pod's containers know their hooks",
			seen: observed(running("a0", "a", madeWith(7*time.Second), made("/a"))),
			want: Termination{Stages: [][]Kill{{hooked(specless(stop("a0", "a", 7)), "/a")}}},
		},
		{
			name: "the spec's hooks count where it is known, those of sidecars too",
			pod:  basePod(sidecars("s"), preStop("s", "/s"), preStop("a", "/a")),
			seen: observed(running("s-0", "s", made("/old")), running("a0", "a"), running("b0", "b", made("/old")), running("x0", "x", made("/x"))),
			want: Termination{Stages: [][]Kill{
				{hooked(stop("a0", "a", 30), "/a"), stop("b0", "b", 30), hooked(specless(stop("x0", "x", 30)), "/x")},
				{hooked(stop("s-0", "s", 30), "/s")},
			}},
		},
		{
			name: "ephemeral containers stop with the main ones, before the sidecars",
			pod:  basePod(sidecars("s"), ephemerals("e")),
			seen: observed(running("s-0", "s"), running("e0", "e"), running("a0", "a")),
			want: Termination{Stages: [][]Kill{{stop("e0", "e", 30), stop("a0", "a", 30)}, {stop("s-0", "s", 30)}}},
		},
		{
			name: "the deletion's grace period goes before the spec's",
			pod:  basePod(grace(50), deletion(3)), seen: observed(running("a0", "a")),
			want: Termination{Stages: [][]Kill{{stop("a0", "a", 3)}}},
		},
	} {
		t.Run(r.name, func(t *testing.T) {
			if d := gocmp.Diff(r.want, Terminate(r.pod, r.seen), byName); d != "" {
				t.Errorf("termination (-want +got):\n%s", d)
			}
		})
	}
}
