package plan

import (
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/tinylet/tinylet/agent/container"
)

func TestRules(t *testing.T) {
	const never1, always1 = v1.ContainerRestartPolicyNever, v1.ContainerRestartPolicyAlways
	rule := own("a", never1, on(restart, 42))
	check(t, []row{
		{
			name: "an exit code that a rule has restarts under Never",
			pod:  never(rule), seen: observed(ready("s0", 0), exited("a0", "a", 42), running("b0", "b")),
			want: Actions{SandboxID: "s0", Start: []Start{start("a", 1, first)}},
		},
		{
			name: "another does not",
			pod:  never(rule), seen: observed(ready("s0", 0), exited("a0", "a", 43), running("b0", "b")),
			want: Actions{SandboxID: "s0"},
		},
		{
			name: "the pod is done when no rule holds it",
			pod:  never(rule), seen: observed(ready("s0", 0), exited("a0", "a", 43), exited("b0", "b", 1)),
			want: Actions{SandboxID: "s0", KillPod: true, Done: true},
		},
		{
			name: "a rule keeps a pod going that is else done",
			pod:  never(rule), seen: observed(ready("s0", 0), exited("a1", "a", 42, count(1), backoff(2*first), ran(-5*first, -4*first)), exited("b0", "b", 0)),
			want: Actions{SandboxID: "s0", Start: []Start{start("a", 2, 4*first)}},
		},
		{
			name: "in a new sandbox only what comes back by rule or policy starts",
			pod:  never(rule), seen: observed(notReady("s0", 0), exited("a0", "a", 42), exited("b0", "b", 255)),
			want: Actions{KillPod: true, CreateSandbox: true, Attempt: 1, Start: []Start{start("a", 1, first)}},
		},
		{
			name: "a rule tries an init container again under Never",
			pod:  never(inits("i"), own("i", never1, on(restart, 42))), seen: observed(ready("s0", 0), exited("i0", "i", 42)),
			want: Actions{SandboxID: "s0", Start: []Start{startInit("i", 1, first)}},
		},
		{
			name: "an init container's own Never fails a pod that restarts always",
			pod:  basePod(inits("i"), own("i", never1)), seen: observed(ready("s0", 0), exited("i0", "i", 42)),
			want: Actions{SandboxID: "s0", KillPod: true, Done: true},
		},
		{
			name: "an unknown state has no exit code that a rule could see",
			pod:  never(inits("i"), own("i", never1, on(restart, 0))), seen: observed(ready("s0", 0), unknown("i0", "i")),
			want: Actions{SandboxID: "s0", KillPod: true, Done: true},
		},
		{
			name: "Always of a container keeps a pod that never restarts going",
			pod:  never(own("a", always1)), seen: observed(ready("s0", 0), exited("a0", "a", 0), exited("b0", "b", 0)),
			want: Actions{SandboxID: "s0", Start: []Start{start("a", 1, first)}},
		},
	})
}

func TestReset(t *testing.T) {
	const never1, always1 = v1.ContainerRestartPolicyNever, v1.ContainerRestartPolicyAlways
	reset := func(id, name string) Kill {
		return Kill{ID: id, Name: name, Message: "Container " + name + " is restarted with all containers of the pod", Container: &v1.Container{Name: name}}
	}
	pods := never(inits("i"), sidecars("s"), ephemerals("e"), own("a", never1, on(restartAll, 42)))
	bySidecar := never(sidecars("s"), own("s", always1, on(restartAll, 42)))
	check(t, []row{
		{
			name: "first all that runs is killed, but for ephemeral containers",
			pod:  pods,
			seen: observed(ready("s0", 0), exited("i0", "i", 0), running("s-0", "s"), running("b0", "b"), running("e0", "e"), exited("a0", "a", 42)),
			want: Actions{SandboxID: "s0", Kill: []Kill{reset("s-0", "s"), reset("b0", "b")}},
		},
		{
			name: "then all is removed, the one that asked for it last",
			pod:  pods,
			seen: observed(ready("s0", 0), exited("a1", "a", 42, count(1)), exited("i0", "i", 0), exited("s-0", "s", 137), exited("b0", "b", 137), running("e0", "e"), exited("a0", "a", 1), created("b1", "b", count(1))),
			want: Actions{SandboxID: "s0", Reset: true, Remove: []string{"b1", "i0", "s-0", "b0", "a0", "a1"}},
		},
		{
			name: "an agent that died in between goes on",
			pod:  pods, seen: observed(ready("s0", 0), exited("b0", "b", 137), exited("a0", "a", 42), exited("e0", "e", 0)),
			want: Actions{SandboxID: "s0", Reset: true, Remove: []string{"b0", "a0"}},
		},
		{
			name: "then the pod starts from the beginning, without what ran once",
			pod:  pods, seen: observed(ready("s0", 0), exited("e0", "e", 0)),
			want: Actions{SandboxID: "s0", Start: []Start{startInit("i", 0, 0)}},
		},
		{
			name: "one that began a moment ago waits first",
			pod:  pods, seen: observed(ready("s0", 0), running("b0", "b"), exited("a0", "a", 42, ran(-first/2, -1))),
			want: Actions{SandboxID: "s0", Next: now.Add(first / 2), Waiting: map[string]Waiting{"a": {
				Reason: "CrashLoopBackOff", Message: "back-off 10s restarting failed container=a pod=web_default(uid-1)", Until: now.Add(first / 2),
			}}},
		},
		{
			name: "one that began in the future does not",
			pod:  pods, seen: observed(ready("s0", 0), exited("b0", "b", 1), exited("a0", "a", 42, ran(first, 2*first))),
			want: Actions{SandboxID: "s0", Reset: true, Remove: []string{"b0", "a0"}},
		},
		{
			name: "it comes before the new sandbox",
			pod:  pods, seen: observed(notReady("s0", 0), exited("b0", "b", 137), exited("a0", "a", 42)),
			want: Actions{Reset: true, Remove: []string{"b0", "a0"}},
		},
		{
			name: "another exit code ends as ever",
			pod:  pods, seen: observed(ready("s0", 0), exited("i0", "i", 0), running("s-0", "s"), exited("b0", "b", 0), exited("a0", "a", 41)),
			want: Actions{SandboxID: "s0", KillPod: true, Done: true},
		},
		{
			name: "an earlier end of one that runs again does not count",
			pod:  pods, seen: observed(ready("s0", 0), exited("i0", "i", 0), running("s-0", "s"), running("b0", "b"), running("e0", "e"), running("a1", "a", count(1)), exited("a0", "a", 42)),
			want: Actions{SandboxID: "s0"},
		},
		{
			name: "an init container may ask for it",
			pod:  never(sidecars("s"), inits("i"), own("i", never1, on(restartAll, 42))), seen: observed(ready("s0", 0), exited("s-0", "s", 137), exited("i0", "i", 42)),
			want: Actions{SandboxID: "s0", Reset: true, Remove: []string{"s-0", "i0"}},
		},
		{
			name: "a sidecar may ask for it while a main container runs",
			pod:  bySidecar, seen: observed(ready("s0", 0), exited("s-0", "s", 42), running("a0", "a"), exited("b0", "b", 0)),
			want: Actions{SandboxID: "s0", Kill: []Kill{reset("a0", "a")}},
		},
		{
			name: "and goes on asking when that was killed for it",
			pod:  bySidecar, seen: observed(ready("s0", 0), exited("s-0", "s", 42, ran(-5*first, -4*first)), exited("a0", "a", 137), exited("b0", "b", 0, ran(-9*first, -8*first))),
			want: Actions{SandboxID: "s0", Reset: true, Remove: []string{"a0", "b0", "s-0"}},
		},
		{
			name: "a sidecar that was stopped after the pod does not bring it back",
			pod:  bySidecar, seen: observed(notReady("s0", 0), exited("s-0", "s", 42), exited("a0", "a", 0), exited("b0", "b", 0)),
			want: Actions{Done: true},
		},
	})
}

func TestEphemeral(t *testing.T) {
	main := []any{ready("s0", 0), running("a0", "a"), running("b0", "b")}
	with := func(parts ...any) *container.Observed { return observed(append(parts, main...)...) }
	pods := basePod(ephemerals("e"))
	check(t, []row{
		{
			name: "one is started once the sandbox is there, beside init containers",
			pod:  basePod(inits("i"), ephemerals("e")), seen: observed(ready("s0", 0), running("i0", "i")),
			want: Actions{SandboxID: "s0", Start: []Start{startEphemeral("e")}},
		},
		{
			name: "and before them",
			pod:  basePod(inits("i"), ephemerals("e")), seen: observed(ready("s0", 0)),
			want: Actions{SandboxID: "s0", Start: []Start{startEphemeral("e"), startInit("i", 0, 0)}},
		},
		{
			name: "one comes to a pod that runs",
			pod:  pods, seen: with(),
			want: Actions{SandboxID: "s0", Start: []Start{startEphemeral("e")}},
		},
		{
			name: "one waits for the sandbox",
			pod:  pods, seen: observed(),
			want: Actions{CreateSandbox: true, Start: []Start{start("a", 0, 0), start("b", 0, 0)}},
		},
		{name: "one that runs is left alone", pod: pods, seen: with(running("e0", "e")), want: Actions{SandboxID: "s0"}},
		{name: "one that runs twice is left alone", pod: pods, seen: with(running("e0", "e"), running("e1", "e", count(1))), want: Actions{SandboxID: "s0"}},
		{name: "one that ended is not started again", pod: pods, seen: with(exited("e0", "e", 1)), want: Actions{SandboxID: "s0"}},
		{
			name: "nor in a new sandbox",
			pod:  pods, seen: observed(ready("s1", 1), notReady("s0", 0), exited("e0", "e", 1), running("a0", "a", in("s1")), running("b0", "b", in("s1"))),
			want: Actions{SandboxID: "s1", Attempt: 1},
		},
		{
			name: "one that was only created is started",
			pod:  pods, seen: with(created("e0", "e")),
			want: Actions{SandboxID: "s0", Start: []Start{existing(startEphemeral("e"), "e0")}},
		},
		{
			name: "one that was created in an older sandbox is made anew",
			pod:  pods, seen: observed(ready("s1", 1), notReady("s0", 0), created("e0", "e"), running("a0", "a", in("s1")), running("b0", "b", in("s1"))),
			want: Actions{SandboxID: "s1", Attempt: 1, Start: []Start{startEphemeral("e")}, Remove: []string{"e0"}, RemoveSandboxes: []string{"s0"}},
		},
		{
			name: "one does not keep the pod alive",
			pod:  never(ephemerals("e")), seen: observed(ready("s0", 0), exited("a0", "a", 0), exited("b0", "b", 0), running("e0", "e")),
			want: Actions{SandboxID: "s0", KillPod: true, Done: true},
		},
		{
			name: "nor is one started in a pod that is done",
			pod:  never(ephemerals("e")), seen: observed(ready("s0", 0), exited("a0", "a", 0), exited("b0", "b", 0)),
			want: Actions{SandboxID: "s0", KillPod: true, Done: true},
		},
	})
}
