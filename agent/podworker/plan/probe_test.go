package plan

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tinylet/tinylet/agent/pod"
)

func failed(kind string, grace ...int64) pod.ProbeResult {
	p := pod.ProbeResult{Started: kind == "Liveness", Failed: kind}
	if len(grace) > 0 {
		p.Grace = &grace[0]
	}
	return p
}

func with(k Kill, grace time.Duration) Kill {
	k.Grace = grace
	return k
}

func TestProbes(t *testing.T) {
	const s = time.Second
	both := observed(ready("s0", 0), running("a0", "a"), running("b0", "b"))
	liveness := map[string]pod.ProbeResult{"a0": failed("Liveness")}
	deleting := func(p *v1.Pod) { p.DeletionGracePeriodSeconds = new(int64(3)) }
	preStop := func(p *v1.Pod) { p.Spec.Containers[0].Lifecycle = &v1.Lifecycle{PreStop: hook("/bye")} }
	restarted := kill("a0", "a", "Container a failed liveness probe, will be restarted")
	hooked := restarted
	hooked.PreStop = hook("/bye")
	check(t, []row{
		{
			name: "liveness kills and restarts",
			pod:  basePod(), seen: both, probes: liveness,
			want: Actions{SandboxID: "s0", Kill: []Kill{restarted}, Start: []Start{start("a", 1, first)}},
		},
		{
			name: "the hook runs before",
			pod:  basePod(preStop), seen: both, probes: liveness,
			want: Actions{SandboxID: "s0", Kill: []Kill{hooked}, Start: []Start{start("a", 1, first)}},
		},
		{
			name: "startup kills and restarts",
			pod:  onFailure(), seen: both, probes: map[string]pod.ProbeResult{"a0": failed("Startup")},
			want: Actions{SandboxID: "s0", Kill: []Kill{kill("a0", "a", "Container a failed startup probe, will be restarted")}, Start: []Start{start("a", 1, first)}},
		},
		{
			name: "the probe's own grace period counts",
			pod:  basePod(), seen: both, probes: map[string]pod.ProbeResult{"a0": failed("Liveness", 0)},
			want: Actions{SandboxID: "s0", Kill: []Kill{with(restarted, 0)}, Start: []Start{start("a", 1, first)}},
		},
		{
			name: "a hostile one is none",
			pod:  basePod(), seen: both, probes: map[string]pod.ProbeResult{"a0": failed("Liveness", -1<<63)},
			want: Actions{SandboxID: "s0", Kill: []Kill{with(restarted, 0)}, Start: []Start{start("a", 1, first)}},
		},
		{
			name: "but not before that of the pod's deletion",
			pod:  basePod(deleting), seen: both, probes: map[string]pod.ProbeResult{"a0": failed("Liveness", 60)},
			want: Actions{SandboxID: "s0", Kill: []Kill{with(restarted, 3*s)}, Start: []Start{start("a", 1, first)}},
		},
		{
			name: "nor for another reason",
			pod:  basePod(), seen: both, probes: map[string]pod.ProbeResult{"a0": {Started: true, Grace: new(int64(1))}},
			want: Actions{SandboxID: "s0"},
		},
		{
			name: "one that ran for longer than its wait comes back at once",
			pod:  basePod(), seen: observed(ready("s0", 0), running("a3", "a", count(3), backoff(40*s)), running("b0", "b")), probes: map[string]pod.ProbeResult{"a3": failed("Liveness")},
			want: Actions{SandboxID: "s0", Kill: []Kill{kill("a3", "a", "Container a failed liveness probe, will be restarted")}, Start: []Start{start("a", 4, 80*s)}},
		},
		{
			name: "one that did not is only killed, and waits then",
			pod:  basePod(), seen: observed(ready("s0", 0), running("a4", "a", count(4), backoff(80*s)), running("b0", "b")), probes: map[string]pod.ProbeResult{"a4": failed("Liveness")},
			want: Actions{SandboxID: "s0", Kill: []Kill{kill("a4", "a", "Container a failed liveness probe, will be restarted")}},
		},
		{
			name: "a clock set back does not make it wait",
			pod:  basePod(), seen: observed(ready("s0", 0), running("a4", "a", count(4), backoff(80*s), ran(time.Hour, 0)), running("b0", "b")), probes: map[string]pod.ProbeResult{"a4": failed("Liveness")},
			want: Actions{SandboxID: "s0", Kill: []Kill{kill("a4", "a", "Container a failed liveness probe, will be restarted")}, Start: []Start{start("a", 5, 160*s)}},
		},
		{
			name: "the only one that waits keeps the pod",
			pod:  onFailure(), seen: observed(ready("s0", 0), running("a4", "a", count(4), backoff(80*s)), exited("b0", "b", 0)), probes: map[string]pod.ProbeResult{"a4": failed("Liveness")},
			want: Actions{SandboxID: "s0", Kill: []Kill{kill("a4", "a", "Container a failed liveness probe, will be restarted")}},
		},
		{
			name: "under Never it is killed for good",
			pod:  never(), seen: both, probes: liveness,
			want: Actions{SandboxID: "s0", Kill: []Kill{kill("a0", "a", "Container a failed liveness probe")}},
		},
		{
			name: "the last one under Never is killed before the pod is done",
			pod:  never(sidecars("s"), ephemerals("e")),
			seen: observed(ready("s0", 0), running("s-0", "s"), running("a0", "a"), exited("b0", "b", 0)),
			probes: map[string]pod.ProbeResult{
				"a0": failed("Liveness", 7), "s-0": failed("Liveness"),
			},
			want: Actions{SandboxID: "s0", Kill: []Kill{with(kill("a0", "a", "Container a failed liveness probe"), 7*s)}},
		},
		{
			name: "a container's own Never counts, its rules do not",
			pod:  basePod(own("a", v1.ContainerRestartPolicyNever, on(restart, 137, 143))), seen: both, probes: liveness,
			want: Actions{SandboxID: "s0", Kill: []Kill{kill("a0", "a", "Container a failed liveness probe")}},
		},
		{
			name: "results of containers that are over do not count",
			pod:  never(), seen: observed(ready("s0", 0), exited("a0", "a", 0), running("b0", "b")), probes: liveness,
			want: Actions{SandboxID: "s0"},
		},
		{
			name: "nor of a pod that is being deleted",
			pod:  basePod(func(p *v1.Pod) { p.DeletionTimestamp = &metav1.Time{Time: now} }), seen: both, probes: liveness,
			want: Actions{SandboxID: "s0"},
		},
	})
}

func TestSidecars(t *testing.T) {
	pods := basePod(sidecars("s"), startupProbed("s"), inits("i"))
	last := basePod(inits("i"), sidecars("s"), startupProbed("s"))
	check(t, []row{
		{
			name: "one whose startup probe did not run yet holds up the next",
			pod:  pods, seen: observed(ready("s0", 0), running("s-0", "s")),
			want: Actions{SandboxID: "s0"},
		},
		{
			name: "one that has not started holds up the next",
			pod:  pods, seen: observed(ready("s0", 0), running("s-0", "s")), probes: map[string]pod.ProbeResult{"s-0": {}},
			want: Actions{SandboxID: "s0"},
		},
		{
			name: "so does one whose postStart hook is at work",
			pod:  basePod(sidecars("s"), inits("i")), seen: observed(ready("s0", 0), running("s-0", "s")), probes: map[string]pod.ProbeResult{"s-0": {}},
			want: Actions{SandboxID: "s0"},
		},
		{
			name: "one that has started lets the next start",
			pod:  pods, seen: observed(ready("s0", 0), running("s-0", "s")), probes: map[string]pod.ProbeResult{"s-0": {Started: true}},
			want: Actions{SandboxID: "s0", Start: []Start{startInit("i", 0, 0)}},
		},
		{
			name: "the last one lets the main containers start",
			pod:  last, seen: observed(ready("s0", 0), exited("i0", "i", 0), running("s-0", "s")), probes: map[string]pod.ProbeResult{"s-0": {Started: true}},
			want: Actions{SandboxID: "s0", Start: []Start{start("a", 0, 0), start("b", 0, 0)}},
		},
		{
			name: "or holds them up",
			pod:  last, seen: observed(ready("s0", 0), exited("i0", "i", 0), running("s-0", "s")), probes: map[string]pod.ProbeResult{"s-0": {}},
			want: Actions{SandboxID: "s0"},
		},
		{
			name: "one that has not started again does not disturb the main containers",
			pod:  last, seen: observed(ready("s0", 0), running("s-1", "s", count(1)), exited("a0", "a", 1), running("b0", "b")), probes: map[string]pod.ProbeResult{"s-1": {}},
			want: Actions{SandboxID: "s0", Start: []Start{start("a", 1, first)}},
		},
		{
			name: "startup kills it and starts it again",
			pod:  pods, seen: observed(ready("s0", 0), running("s-0", "s")), probes: map[string]pod.ProbeResult{"s-0": failed("Startup", 5)},
			want: Actions{
				SandboxID: "s0",
				Kill:      []Kill{with(kill("s-0", "s", "Init container s failed startup probe"), 5*time.Second)},
				Start:     []Start{startInit("s", 1, first)},
			},
		},
		{
			name: "liveness too, also under Never, and the next one starts all the same",
			pod:  never(sidecars("s"), inits("i")), seen: observed(ready("s0", 0), running("s-0", "s")), probes: map[string]pod.ProbeResult{"s-0": failed("Liveness")},
			want: Actions{
				SandboxID: "s0",
				Kill:      []Kill{kill("s-0", "s", "Init container s failed liveness probe")},
				Start:     []Start{startInit("s", 1, first), startInit("i", 0, 0)},
			},
		},
		{
			name: "one is started again while a later init container runs",
			pod:  pods, seen: observed(ready("s0", 0), exited("s-0", "s", 0), running("i0", "i")),
			want: Actions{SandboxID: "s0", Start: []Start{startInit("s", 1, first)}},
		},
		{
			name: "a changed one is started again",
			pod:  basePod(sidecars("s"), image("s", "img:2")), seen: observed(ready("s0", 0), running("s-0", "s"), running("a0", "a"), running("b0", "b")),
			want: Actions{
				SandboxID: "s0",
				Kill:      []Kill{kill("s-0", "s", "Init container s definition changed")},
				Start:     []Start{startInit("s", 1, first)},
			},
		},
		{
			name: "its exit code does not count for the pod",
			pod:  onFailure(sidecars("s")), seen: observed(ready("s0", 0), exited("s-0", "s", 1), exited("a0", "a", 0), exited("b0", "b", 0)),
			want: Actions{SandboxID: "s0", KillPod: true, Done: true},
		},
	})
}

func TestActiveFor(t *testing.T) {
	const s, year = time.Second, 365 * 24 * time.Hour
	for _, r := range []struct {
		name                      string
		measured, ageThen, ageNow time.Duration
		want                      time.Duration
	}{
		{name: "the agent saw it all", measured: 10 * s, ageNow: 10 * s, want: 10 * s},
		{name: "the agent came later", measured: 10 * s, ageThen: 50 * s, ageNow: 60 * s, want: 60 * s},
		{name: "the clock was set forward by years", measured: 10 * s, ageThen: 50 * s, ageNow: 60*s + 50*year, want: 60 * s},
		{name: "the clock was set back by years", measured: 10 * s, ageThen: 50 * s, ageNow: 60*s - 50*year, want: 10 * s},
		{name: "what was made after it was set back seems old", measured: 10 * s, ageThen: 50 * year, ageNow: 5 * s, want: 10 * s},
		{name: "absurd ages do not overflow", measured: 10 * s, ageThen: 1<<63 - 1, ageNow: 1<<63 - 1, want: 1<<63 - 1},
	} {
		t.Run(r.name, func(t *testing.T) {
			if got := activeFor(r.measured, r.ageThen, r.ageNow); got != r.want {
				t.Errorf("active for %v, want %v", got, r.want)
			}
		})
	}
}
