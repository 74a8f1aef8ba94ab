package plan

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tinylet/tinylet/agent/container"
	"github.com/tinylet/tinylet/agent/pod"
)

const first = 10 * time.Second

// never and onFailure abbreviate pods.
func never(m ...func(*v1.Pod)) *v1.Pod {
	return basePod(append([]func(*v1.Pod){policy(v1.RestartPolicyNever)}, m...)...)
}

func onFailure(m ...func(*v1.Pod)) *v1.Pod {
	return basePod(append([]func(*v1.Pod){policy(v1.RestartPolicyOnFailure)}, m...)...)
}

type row struct {
	name   string
	pod    *v1.Pod
	seen   *container.Observed
	probes map[string]pod.ProbeResult
	want   Actions
}

func check(t *testing.T, rows []row) {
	for _, r := range rows {
		t.Run(r.name, func(t *testing.T) {
			diff(t, r.want, Sync(Input{Pod: r.pod, Observed: r.seen, Now: now, Hash: hashOf, Probes: r.probes}))
		})
	}
}

func TestSandbox(t *testing.T) {
	hostNetwork := func(p *v1.Pod) { p.Spec.HostNetwork = true }
	check(t, []row{
		{
			name: "a new pod gets a sandbox and all its containers",
			pod:  basePod(), seen: nil,
			want: Actions{CreateSandbox: true, Start: []Start{start("a", 0, 0), start("b", 0, 0)}},
		},
		{
			name: "a new pod with init containers starts the first of them",
			pod:  basePod(inits("i", "j")), seen: observed(),
			want: Actions{CreateSandbox: true, Start: []Start{startInit("i", 0, 0)}},
		},
		{
			name: "a ready sandbox is used",
			pod:  basePod(), seen: observed(ready("s0", 0)),
			want: Actions{SandboxID: "s0", Start: []Start{start("a", 0, 0), start("b", 0, 0)}},
		},
		{
			name: "a steady pod is left alone",
			pod:  basePod(), seen: observed(ready("s0", 3), running("a0", "a"), running("b0", "b")),
			want: Actions{SandboxID: "s0", Attempt: 3},
		},
		{
			name: "a sandbox that is not ready is made anew, and everything with it",
			pod:  basePod(), seen: observed(notReady("s0", 4), running("a0", "a"), exited("b0", "b", 1, count(2))),
			want: Actions{KillPod: true, CreateSandbox: true, Attempt: 5, Start: []Start{start("a", 1, first), start("b", 3, first)}},
		},
		{
			name: "a network mode that changed is a new sandbox",
			pod:  basePod(hostNetwork), seen: observed(ready("s0", 0), running("a0", "a"), running("b0", "b")),
			want: Actions{KillPod: true, CreateSandbox: true, Attempt: 1, Start: []Start{start("a", 1, first), start("b", 1, first)}},
		},
		{
			name: "init containers run again in a new sandbox",
			pod:  basePod(inits("i", "j")),
			seen: observed(notReady("s0", 0), exited("i0", "i", 0), exited("j0", "j", 0), exited("a0", "a", 255), exited("b0", "b", 255)),
			want: Actions{KillPod: true, CreateSandbox: true, Attempt: 1, Start: []Start{startInit("i", 1, 0)}},
		},
		{
			name: "containers that are left without any sandbox are replaced",
			pod:  basePod(), seen: observed(exited("a0", "a", 1), running("b0", "b")),
			want: Actions{KillPod: true, CreateSandbox: true, Start: []Start{start("a", 1, first), start("b", 1, first)}},
		},
		{
			name: "OnFailure starts again only what failed",
			pod:  onFailure(), seen: observed(notReady("s0", 0), exited("a0", "a", 0), exited("b0", "b", 1)),
			want: Actions{KillPod: true, CreateSandbox: true, Attempt: 1, Start: []Start{start("b", 1, first)}},
		},
		{
			name: "OnFailure with all done gets no new sandbox",
			pod:  onFailure(), seen: observed(notReady("s0", 0), exited("a0", "a", 0), exited("b0", "b", 0)),
			want: Actions{Done: true},
		},
		{
			name: "Never with all run gets no new sandbox",
			pod:  never(), seen: observed(notReady("s0", 0), exited("a0", "a", 255), exited("b0", "b", 0)),
			want: Actions{Done: true},
		},
		{
			name: "Never stops what outlived its sandbox",
			pod:  never(), seen: observed(notReady("s0", 0), running("a0", "a"), exited("b0", "b", 0)),
			want: Actions{KillPod: true, Done: true},
		},
		{
			name: "Never whose containers did not run yet starts over",
			pod:  never(inits("i")), seen: observed(notReady("s0", 0), exited("i0", "i", 0), created("a0", "a")),
			want: Actions{
				KillPod: true, CreateSandbox: true, Attempt: 1, Start: []Start{startInit("i", 1, 0)},
				Remove: []string{"a0"},
			},
		},
		{
			name: "Never whose init container was lost with the sandbox has failed",
			pod:  never(inits("i")), seen: observed(notReady("s0", 0), exited("i0", "i", 255, reason("Unknown"))),
			want: Actions{Done: true},
		},
		{
			name: "an older ready sandbox with nothing in it is removed",
			pod:  basePod(), seen: observed(ready("s1", 1), ready("s0", 0), running("a0", "a", in("s1")), running("b0", "b", in("s1"))),
			want: Actions{SandboxID: "s1", Attempt: 1, RemoveSandboxes: []string{"s0"}},
		},
		{
			name: "an older ready sandbox with evidence in it is stopped",
			pod:  basePod(), seen: observed(ready("s1", 1), ready("s0", 0), exited("a0", "a", 1), running("a1", "a", in("s1"), count(1)), running("b1", "b", in("s1"))),
			want: Actions{SandboxID: "s1", Attempt: 1, StopSandboxes: []string{"s0"}},
		},
		{
			name: "what runs in an older sandbox is killed",
			pod:  basePod(), seen: observed(ready("s1", 1), notReady("s0", 0), running("a0", "a"), running("b1", "b", in("s1"))),
			want: Actions{
				SandboxID: "s1", Attempt: 1,
				Kill:  []Kill{kill("a0", "a", "Container a runs in an older pod sandbox")},
				Start: []Start{start("a", 1, first)},
			},
		},
		{
			name: "the highest attempt number is not passed",
			pod:  basePod(), seen: observed(notReady("s0", 1<<32-1)),
			want: Actions{KillPod: true, CreateSandbox: true, Attempt: 1<<32 - 1, Start: []Start{start("a", 0, 0), start("b", 0, 0)}},
		},
		{
			name: "a pod being deleted starts nothing",
			pod:  basePod(func(p *v1.Pod) { p.DeletionTimestamp = &metav1.Time{Time: now} }), seen: observed(ready("s0", 0)),
			want: Actions{SandboxID: "s0"},
		},
		{
			name: "a pod that the API server calls failed is over",
			pod:  basePod(func(p *v1.Pod) { p.Status.Phase = v1.PodFailed }), seen: observed(ready("s0", 0), running("a0", "a")),
			want: Actions{SandboxID: "s0", KillPod: true, Done: true},
		},
		{
			name: "a manifest's own status counts for nothing",
			pod: basePod(func(p *v1.Pod) {
				p.Status.Phase = v1.PodFailed
				p.Annotations = map[string]string{pod.AnnotationSource: pod.SourceFile}
			}),
			seen: observed(ready("s0", 0), running("a0", "a"), running("b0", "b")),
			want: Actions{SandboxID: "s0"},
		},
		{
			name: "a spec without containers is over and does not panic",
			pod:  basePod(func(p *v1.Pod) { p.Spec.Containers = nil }), seen: nil,
			want: Actions{Done: true},
		},
	})
}

func TestMains(t *testing.T) {
	containerNever := func(p *v1.Pod) {
		own := v1.ContainerRestartPolicyNever
		p.Spec.Containers[0].RestartPolicy = &own
	}
	check(t, []row{
		{
			name: "Always restarts what exits with 0",
			pod:  basePod(), seen: observed(ready("s0", 0), exited("a0", "a", 0), running("b0", "b")),
			want: Actions{SandboxID: "s0", Start: []Start{start("a", 1, first)}},
		},
		{
			name: "OnFailure restarts what fails",
			pod:  onFailure(), seen: observed(ready("s0", 0), exited("a0", "a", 1), exited("b0", "b", 0)),
			want: Actions{SandboxID: "s0", Start: []Start{start("a", 1, first)}},
		},
		{
			name: "OnFailure is done when all ended well",
			pod:  onFailure(), seen: observed(ready("s0", 0), exited("a0", "a", 0), exited("b0", "b", 0)),
			want: Actions{SandboxID: "s0", KillPod: true, Done: true},
		},
		{
			name: "Never goes on while one runs",
			pod:  never(), seen: observed(ready("s0", 0), exited("a0", "a", 1), running("b0", "b")),
			want: Actions{SandboxID: "s0"},
		},
		{
			name: "Never is done when all ended",
			pod:  never(), seen: observed(ready("s0", 0), exited("a0", "a", 1), exited("b0", "b", 0)),
			want: Actions{SandboxID: "s0", KillPod: true, Done: true},
		},
		{
			name: "Never starts what did not run yet",
			pod:  never(), seen: observed(ready("s0", 0), exited("a0", "a", 1)),
			want: Actions{SandboxID: "s0", Start: []Start{start("b", 0, 0)}},
		},
		{
			name: "a container's own policy goes before the pod's",
			pod:  basePod(containerNever), seen: observed(ready("s0", 0), exited("a0", "a", 1), exited("b0", "b", 0)),
			want: Actions{SandboxID: "s0", Start: []Start{start("b", 1, first)}},
		},
		{
			name: "a changed image restarts the container and counts on",
			pod:  basePod(image("a", "img:2")), seen: observed(ready("s0", 0), running("a7", "a", count(7)), running("b0", "b")),
			want: Actions{
				SandboxID: "s0",
				Kill:      []Kill{kill("a7", "a", "Container a definition changed, will be restarted")},
				Start:     []Start{start("a", 8, first)},
			},
		},
		{
			name: "a changed spec restarts under Never too",
			pod:  never(image("a", "img:2")), seen: observed(ready("s0", 0), running("a0", "a"), exited("b0", "b", 0)),
			want: Actions{
				SandboxID: "s0",
				Kill:      []Kill{kill("a0", "a", "Container a definition changed, will be restarted")},
				Start:     []Start{start("a", 1, first)},
			},
		},
		{
			name: "a changed spec does not run a completed container again",
			pod:  never(image("a", "img:2")), seen: observed(ready("s0", 0), exited("a0", "a", 0), running("b0", "b")),
			want: Actions{SandboxID: "s0"},
		},
		{
			name: "a container without a hash is taken as it is",
			pod:  basePod(), seen: observed(ready("s0", 0), running("a0", "a", func(c *container.Container) { c.Hash = "" }), running("b0", "b")),
			want: Actions{SandboxID: "s0"},
		},
		{
			name: "an unknown state is killed before the restart",
			pod:  basePod(), seen: observed(ready("s0", 0), unknown("a0", "a"), running("b0", "b")),
			want: Actions{
				SandboxID: "s0",
				Kill:      []Kill{kill("a0", "a", "Container a is in an unknown state, killed before its restart")},
				Start:     []Start{start("a", 1, first)},
			},
		},
		{
			name: "an unknown state restarts under Never too",
			pod:  never(), seen: observed(ready("s0", 0), unknown("a0", "a"), exited("b0", "b", 0)),
			want: Actions{
				SandboxID: "s0",
				Kill:      []Kill{kill("a0", "a", "Container a is in an unknown state, killed before its restart")},
				Start:     []Start{start("a", 1, first)},
			},
		},
		{
			name: "a created container is started, not made twice",
			pod:  basePod(), seen: observed(ready("s0", 0), created("a2", "a", count(2), backoff(20*time.Second)), exited("a1", "a", 1, count(1)), running("b0", "b")),
			want: Actions{SandboxID: "s0", Start: []Start{existing(start("a", 2, 20*time.Second), "a2")}},
		},
		{
			name: "a created container is started under Never",
			pod:  never(), seen: observed(ready("s0", 0), created("a0", "a"), exited("b0", "b", 0)),
			want: Actions{SandboxID: "s0", Start: []Start{existing(start("a", 0, 0), "a0")}},
		},
		{
			name: "a created container of another spec is replaced under its own number",
			pod:  basePod(image("a", "img:2")), seen: observed(ready("s0", 0), created("a2", "a", count(2)), exited("a1", "a", 1, count(1)), running("b0", "b")),
			want: Actions{SandboxID: "s0", Start: []Start{start("a", 2, first)}, Remove: []string{"a2"}},
		},
		{
			name: "of two created containers the newer is started and the other removed",
			pod:  basePod(), seen: observed(ready("s0", 0), created("a1", "a", count(1)), created("a0", "a"), running("b0", "b")),
			want: Actions{SandboxID: "s0", Start: []Start{existing(start("a", 1, 0), "a1")}, Remove: []string{"a0"}},
		},
		{
			name: "a created container beside a running one is removed",
			pod:  basePod(), seen: observed(ready("s0", 0), created("a1", "a", count(1)), running("a0", "a"), running("b0", "b")),
			want: Actions{SandboxID: "s0", Remove: []string{"a1"}},
		},
		{
			name: "a second running container is killed",
			pod:  basePod(), seen: observed(ready("s0", 0), running("a1", "a", count(1)), running("a0", "a"), running("b0", "b")),
			want: Actions{SandboxID: "s0", Kill: []Kill{kill("a0", "a", "Container a runs more than once")}},
		},
		{
			name: "a container that the spec does not have is left alone",
			pod:  basePod(), seen: observed(ready("s0", 0), running("a0", "a"), running("b0", "b"), running("d0", "debugger"), created("e0", "debugger-2")),
			want: Actions{SandboxID: "s0"},
		},
		{
			name: "a restart count near its limit does not overflow",
			pod:  basePod(), seen: observed(ready("s0", 0), exited("a0", "a", 1, count(int(^uint(0)>>1))), running("b0", "b")),
			want: Actions{SandboxID: "s0", Start: []Start{start("a", 1<<31-1, first)}},
		},
	})
}

func TestInits(t *testing.T) {
	pods := basePod(inits("i", "j"))
	check(t, []row{
		{
			name: "nothing else happens while one runs",
			pod:  pods, seen: observed(ready("s0", 0), running("i0", "i")),
			want: Actions{SandboxID: "s0"},
		},
		{
			name: "the second follows the first",
			pod:  pods, seen: observed(ready("s0", 0), exited("i0", "i", 0)),
			want: Actions{SandboxID: "s0", Start: []Start{startInit("j", 0, 0)}},
		},
		{
			name: "the main containers follow the last",
			pod:  pods, seen: observed(ready("s0", 0), exited("i0", "i", 0), exited("j0", "j", 0)),
			want: Actions{SandboxID: "s0", Start: []Start{start("a", 0, 0), start("b", 0, 0)}},
		},
		{
			name: "the last one tells that the earlier ones ran",
			pod:  pods, seen: observed(ready("s0", 0), exited("j0", "j", 0)),
			want: Actions{SandboxID: "s0", Start: []Start{start("a", 0, 0), start("b", 0, 0)}},
		},
		{
			name: "a main container tells that all ran",
			pod:  pods, seen: observed(ready("s0", 0), exited("a0", "a", 1)),
			want: Actions{SandboxID: "s0", Start: []Start{start("a", 1, first), start("b", 0, 0)}},
		},
		{
			name: "a failed one that has the main containers behind it is not run again",
			pod:  pods, seen: observed(ready("s0", 0), exited("j0", "j", 1), running("a0", "a"), running("b0", "b")),
			want: Actions{SandboxID: "s0"},
		},
		{
			name: "what ran in an older sandbox does not count",
			pod:  pods,
			seen: observed(ready("s1", 1), notReady("s0", 0), exited("i0", "i", 0), exited("j0", "j", 0), exited("a0", "a", 255)),
			want: Actions{SandboxID: "s1", Attempt: 1, Start: []Start{startInit("i", 1, 0)}},
		},
		{
			name: "a failed one is tried again",
			pod:  pods, seen: observed(ready("s0", 0), exited("i0", "i", 1)),
			want: Actions{SandboxID: "s0", Start: []Start{startInit("i", 1, first)}},
		},
		{
			name: "a failed one waits in a crash loop",
			pod:  pods, seen: observed(ready("s0", 0), exited("i1", "i", 1, count(1), backoff(first))),
			want: Actions{
				SandboxID: "s0", Next: now.Add(9 * time.Second),
				Waiting: map[string]Waiting{"i": {
					Reason:  "CrashLoopBackOff",
					Message: "back-off 10s restarting failed container=i pod=web_default(uid-1)",
					Until:   now.Add(9 * time.Second),
				}},
			},
		},
		{
			name: "one that ran out of memory failed whatever its exit code",
			pod:  pods, seen: observed(ready("s0", 0), exited("i0", "i", 0, reason("OOMKilled"))),
			want: Actions{SandboxID: "s0", Start: []Start{startInit("i", 1, first)}},
		},
		{
			name: "a failed one under OnFailure is tried again",
			pod:  onFailure(inits("i")), seen: observed(ready("s0", 0), exited("i0", "i", 1)),
			want: Actions{SandboxID: "s0", Start: []Start{startInit("i", 1, first)}},
		},
		{
			name: "a failed one under Never fails the pod",
			pod:  never(inits("i")), seen: observed(ready("s0", 0), exited("i0", "i", 1)),
			want: Actions{SandboxID: "s0", KillPod: true, Done: true},
		},
		{
			name: "an unknown one under Never fails the pod",
			pod:  never(inits("i")), seen: observed(ready("s0", 0), unknown("i0", "i")),
			want: Actions{SandboxID: "s0", KillPod: true, Done: true},
		},
		{
			name: "an unknown one is killed and tried again",
			pod:  pods, seen: observed(ready("s0", 0), unknown("i0", "i")),
			want: Actions{
				SandboxID: "s0",
				Kill:      []Kill{kill("i0", "i", "Container i is in an unknown state, killed before its restart")},
				Start:     []Start{startInit("i", 1, first)},
			},
		},
		{
			name: "a created one is started",
			pod:  pods, seen: observed(ready("s0", 0), exited("i0", "i", 0), created("j0", "j")),
			want: Actions{SandboxID: "s0", Start: []Start{existing(startInit("j", 0, 0), "j0")}},
		},
		{
			name: "a changed spec does not disturb one that runs",
			pod:  basePod(inits("i"), image("i", "img:2")), seen: observed(ready("s0", 0), running("i0", "i")),
			want: Actions{SandboxID: "s0"},
		},
		{
			name: "a restartable one that runs lets the next start",
			pod:  basePod(sidecars("s"), inits("i")), seen: observed(ready("s0", 0), running("s-0", "s")),
			want: Actions{SandboxID: "s0", Start: []Start{startInit("i", 0, 0)}},
		},
		{
			name: "a restartable one that does not run holds up the next",
			pod:  basePod(sidecars("s"), inits("i")), seen: observed(ready("s0", 0), exited("s-0", "s", 0)),
			want: Actions{SandboxID: "s0", Start: []Start{startInit("s", 1, first)}},
		},
		{
			name: "a restartable one is restarted beside the main containers",
			pod:  basePod(sidecars("s")), seen: observed(ready("s0", 0), exited("s-0", "s", 0), running("a0", "a"), running("b0", "b")),
			want: Actions{SandboxID: "s0", Start: []Start{startInit("s", 1, first)}},
		},
		{
			name: "a restartable one does not keep the pod alive",
			pod:  never(sidecars("s")), seen: observed(ready("s0", 0), exited("s-0", "s", 1), exited("a0", "a", 0), exited("b0", "b", 0)),
			want: Actions{SandboxID: "s0", KillPod: true, Done: true},
		},
	})
}

func TestPrune(t *testing.T) {
	check(t, []row{
		{
			name: "one dead container is kept beside the running one",
			pod:  basePod(),
			seen: observed(ready("s0", 0), running("a3", "a", count(3)), exited("a2", "a", 1, count(2)), exited("a1", "a", 1, count(1)), exited("a0", "a", 1), running("b0", "b")),
			want: Actions{SandboxID: "s0", Remove: []string{"a1", "a0"}},
		},
		{
			name: "one dead container is kept beside the dead one that stands for the name",
			pod:  never(),
			seen: observed(ready("s0", 0), exited("a2", "a", 1, count(2)), exited("a1", "a", 1, count(1)), exited("a0", "a", 1), running("b0", "b")),
			want: Actions{SandboxID: "s0", Remove: []string{"a0"}},
		},
		{
			name: "names that the spec does not have are pruned too",
			pod:  basePod(),
			seen: observed(ready("s0", 0), running("a0", "a"), running("b0", "b"), exited("x2", "x", 0, count(2)), exited("x1", "x", 0, count(1)), exited("x0", "x", 0)),
			want: Actions{SandboxID: "s0", Remove: []string{"x0"}},
		},
		{
			name: "one dead container is kept beside the created one that will be started",
			pod:  basePod(),
			seen: observed(ready("s0", 0), created("a2", "a", count(2)), exited("a1", "a", 1, count(1)), exited("a0", "a", 1), running("b0", "b")),
			want: Actions{SandboxID: "s0", Start: []Start{existing(start("a", 2, 0), "a2")}, Remove: []string{"a0"}},
		},
		{
			name: "an older sandbox stays while it holds the last evidence",
			pod:  basePod(),
			seen: observed(ready("s1", 1), notReady("s0", 0), running("a1", "a", in("s1"), count(1)), exited("a0", "a", 255), running("b0", "b", in("s1"))),
			want: Actions{SandboxID: "s1", Attempt: 1},
		},
		{
			name: "an older sandbox goes with what is left in it",
			pod:  basePod(),
			seen: observed(ready("s1", 1), notReady("s0", 0), running("a2", "a", in("s1"), count(2)), exited("a1", "a", 1, in("s1"), count(1)), exited("a0", "a", 255), running("b0", "b", in("s1"))),
			want: Actions{SandboxID: "s1", Attempt: 1, Remove: []string{"a0"}, RemoveSandboxes: []string{"s0"}},
		},
		{
			name: "the newest sandbox stays for its number",
			pod:  never(), seen: observed(notReady("s1", 1), notReady("s0", 0), exited("a0", "a", 0, in("s1")), exited("b0", "b", 0, in("s1"))),
			want: Actions{Done: true, RemoveSandboxes: []string{"s0"}},
		},
	})
}

func TestDeadline(t *testing.T) {
	api := func(p *v1.Pod) { p.Status.StartTime = &metav1.Time{Time: now.Add(-30 * time.Second)} }
	young := func(c *container.Container) { c.CreatedAt = now.Add(-10 * time.Second) }
	sandbox := ready("s0", 0)
	sandbox.CreatedAt = now.Add(-15 * time.Second)
	seen := observed(sandbox, running("a0", "a", young), running("b0", "b", young))
	old := observed(ready("s0", 0), running("a0", "a", young), running("b0", "b", young))
	over := Actions{
		SandboxID: "s0", KillPod: true, Done: true,
		FailReason: "DeadlineExceeded", FailMessage: "Pod was active on the node longer than the specified deadline",
	}
	for _, r := range []struct {
		name    string
		pod     *v1.Pod
		started time.Time
		seen    *container.Observed
		want    Actions
	}{
		{name: "before it, Sync wants to look again then", pod: basePod(deadline(60)), started: now.Add(-20 * time.Second), seen: seen, want: Actions{SandboxID: "s0", Next: now.Add(40 * time.Second)}},
		{name: "at it, the pod is over", pod: basePod(deadline(60)), started: now.Add(-60 * time.Second), seen: seen, want: over},
		{name: "the status tells the start", pod: basePod(deadline(60), api), seen: seen, want: Actions{SandboxID: "s0", Next: now.Add(30 * time.Second)}},
		{name: "the oldest object tells the start", pod: basePod(deadline(3600)), started: now.Add(-20 * time.Second), seen: old, want: over},
		{name: "without any other start the objects tell it", pod: basePod(deadline(60)), seen: seen, want: Actions{SandboxID: "s0", Next: now.Add(45 * time.Second)}},
		{name: "a pod that nobody has seen has not begun", pod: basePod(deadline(1)), want: Actions{CreateSandbox: true, Start: []Start{start("a", 0, 0), start("b", 0, 0)}}},
		{name: "a pod that is done stays what it is", pod: never(deadline(1)), seen: observed(notReady("s0", 0), exited("a0", "a", 0), exited("b0", "b", 0)), want: Actions{Done: true}},
		{name: "an absurd one never comes", pod: basePod(deadline(1<<63 - 1)), seen: seen, want: Actions{SandboxID: "s0"}},
		{name: "it is over again after the agent restarted", pod: basePod(deadline(60)), seen: observed(notReady("s0", 0), exited("a0", "a", 137), exited("b0", "b", 137)), want: Actions{Done: true, FailReason: over.FailReason, FailMessage: over.FailMessage}},
	} {
		t.Run(r.name, func(t *testing.T) {
			diff(t, r.want, Sync(Input{Pod: r.pod, Observed: r.seen, Now: now, StartedAt: r.started, Hash: hashOf}))
		})
	}
}
