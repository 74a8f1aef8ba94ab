package podstatus

import (
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tinylet/tinylet/agent/container"
	"github.com/tinylet/tinylet/agent/pod"
)

func TestPhase(t *testing.T) {
	const always, onFailure, never = v1.RestartPolicyAlways, v1.RestartPolicyOnFailure, v1.RestartPolicyNever
	ab := []string{"a", "b"}
	up := sandbox(0, true)
	good, bad := exited("a", 0, 1, 2, 0, "Completed"), exited("a", 0, 1, 2, 1, "Error")
	goodB := exited("b", 0, 1, 2, 0, "Completed")
	waitA := map[string]Reason{"a": {"CrashLoopBackOff", "back-off"}}
	ownNever := func(p *v1.Pod) {
		own := v1.ContainerRestartPolicyNever
		p.Spec.Containers[0].RestartPolicy = &own
	}
	for _, r := range []struct {
		name string
		pod  *v1.Pod
		in   Input
		want v1.PodPhase
	}{
		{name: "nothing yet", pod: basePod(ab), want: v1.PodPending},
		{name: "a spec without containers", pod: basePod(nil), in: Input{Observed: observed(up)}, want: v1.PodPending},
		{name: "one runs, one is not there", pod: basePod(ab), in: Input{Observed: observed(up, running("a", 0, 1))}, want: v1.PodPending},
		{name: "both run", pod: basePod(ab), in: Input{Observed: observed(up, running("a", 0, 1), running("b", 0, 1))}, want: v1.PodRunning},
		{name: "one runs, one crashed", pod: basePod(ab), in: Input{Observed: observed(up, bad, running("b", 0, 1))}, want: v1.PodRunning},
		{name: "one runs, one waits for a restart", pod: basePod(ab), in: Input{Observed: observed(up, bad, running("b", 0, 1)), Waiting: waitA}, want: v1.PodRunning},
		{name: "both done, to be restarted", pod: basePod(ab, policy(always)), in: Input{Observed: observed(up, good, goodB)}, want: v1.PodRunning},
		{name: "OnFailure, both well", pod: basePod(ab, policy(onFailure)), in: Input{Observed: observed(up, good, goodB)}, want: v1.PodSucceeded},
		{name: "OnFailure, one to be restarted", pod: basePod(ab, policy(onFailure)), in: Input{Observed: observed(up, bad, goodB)}, want: v1.PodRunning},
		{name: "Never, both well", pod: basePod(ab, policy(never)), in: Input{Observed: observed(up, good, goodB)}, want: v1.PodSucceeded},
		{name: "Never, one failed", pod: basePod(ab, policy(never)), in: Input{Observed: observed(up, bad, goodB)}, want: v1.PodFailed},
		{name: "Never, one failed, one runs", pod: basePod(ab, policy(never)), in: Input{Observed: observed(up, bad, running("b", 0, 1))}, want: v1.PodRunning},
		{name: "a container's own policy counts", pod: basePod([]string{"a"}, ownNever), in: Input{Observed: observed(up, bad)}, want: v1.PodFailed},
		{name: "no policy is Always", pod: basePod([]string{"a"}, policy("")), in: Input{Observed: observed(up, good)}, want: v1.PodRunning},

		{name: "init runs", pod: basePod([]string{"a"}, inits("i")), in: Input{Observed: observed(up, running("i", 0, 1))}, want: v1.PodPending},
		{name: "init done", pod: basePod([]string{"a"}, inits("i")), in: Input{Observed: observed(up, exited("i", 0, 1, 2, 0, ""))}, want: v1.PodPending},
		{name: "init failed, to be restarted", pod: basePod([]string{"a"}, inits("i")), in: Input{Observed: observed(up, exited("i", 0, 1, 2, 1, ""))}, want: v1.PodPending},
		{name: "init failed for good", pod: basePod([]string{"a"}, inits("i"), policy(never)), in: Input{Observed: observed(up, exited("i", 0, 1, 2, 1, ""))}, want: v1.PodFailed},
		{name: "init runs again in a new sandbox", pod: basePod([]string{"a"}, inits("i")), in: Input{Observed: observed(up, running("i", 1, 5), bad)}, want: v1.PodPending},
		{name: "what ran is not pending when init runs again", pod: basePod([]string{"a"}, inits("i")), in: Input{Observed: observed(up, running("i", 1, 5), bad), Previous: &v1.PodStatus{Phase: v1.PodRunning}}, want: v1.PodRunning},
		{name: "nor when the API server knows that it ran, and nothing is left of it", pod: basePod([]string{"a"}, fromAPI, inits("i"), func(p *v1.Pod) { p.Status.Phase = v1.PodRunning }), in: Input{Observed: observed(up, running("i", 0, 5)), Previous: &v1.PodStatus{Phase: v1.PodPending}}, want: v1.PodRunning},
		{name: "unless all of it may start over", pod: basePod([]string{"a"}, inits("i"), rules("a", v1.ContainerRestartRuleActionRestartAllContainers)), in: Input{Observed: observed(up, running("i", 1, 5)), Previous: &v1.PodStatus{Phase: v1.PodRunning}}, want: v1.PodPending},
		{name: "sidecar not started", pod: basePod([]string{"a"}, sidecars("s")), in: Input{Observed: observed(up)}, want: v1.PodPending},
		{name: "sidecar runs, its startup probe has not passed", pod: basePod([]string{"a"}, sidecars("s")), in: Input{Observed: observed(up, running("s", 0, 1)), Probes: map[string]pod.ProbeResult{"s-0": {}}}, want: v1.PodPending},
		{name: "sidecar runs with the pod", pod: basePod([]string{"a"}, sidecars("s")), in: Input{Observed: observed(up, running("s", 0, 1), running("a", 0, 1))}, want: v1.PodRunning},
		{name: "sidecar restarts beside the pod", pod: basePod([]string{"a"}, sidecars("s")), in: Input{Observed: observed(up, exited("s", 0, 1, 2, 1, ""), running("a", 0, 1))}, want: v1.PodRunning},
		{name: "sidecar starts in a new sandbox", pod: basePod([]string{"a"}, sidecars("s")), in: Input{Observed: observed(sandbox(1, true), up, in("s1", running("s", 1, 5)), bad), Probes: map[string]pod.ProbeResult{"s-1": {}}}, want: v1.PodPending},
		{name: "sidecar starts while the sandbox goes", pod: basePod([]string{"a"}, sidecars("s")), in: Input{Observed: observed(sandbox(0, false), running("s", 1, 5), bad), Probes: map[string]pod.ProbeResult{"s-1": {}}}, want: v1.PodPending},
		{name: "sidecar starts again beside a crashed container", pod: basePod([]string{"a"}, sidecars("s")), in: Input{Observed: observed(up, running("s", 1, 5), bad), Probes: map[string]pod.ProbeResult{"s-1": {}}}, want: v1.PodRunning},
		{name: "sidecar waits for its image", pod: basePod([]string{"a"}, sidecars("s")), in: Input{Observed: observed(up, bad), Waiting: map[string]Reason{"s": {"ErrImagePull", ""}}}, want: v1.PodPending},
		{name: "sidecar after an init container outlives the pod", pod: basePod([]string{"a"}, inits("i"), sidecars("s"), policy(never)), in: Input{Observed: observed(up, exited("i", 0, 1, 2, 0, ""), running("s", 0, 1), good)}, want: v1.PodRunning},
		{name: "sidecar outlives the pod", pod: basePod([]string{"a"}, sidecars("s"), policy(never)), in: Input{Observed: observed(up, running("s", 0, 1), good)}, want: v1.PodRunning},
		{name: "sidecar was killed after the pod", pod: basePod([]string{"a"}, sidecars("s"), policy(never)), in: Input{Observed: observed(up, exited("s", 0, 1, 2, 137, ""), good)}, want: v1.PodSucceeded},

		{name: "Succeeded is never left", pod: basePod(ab), in: Input{Observed: observed(up, running("a", 0, 1), running("b", 0, 1)), Previous: &v1.PodStatus{Phase: v1.PodSucceeded}}, want: v1.PodSucceeded},
		{name: "Failed is never left", pod: basePod(ab, policy(never)), in: Input{Observed: observed(up, good, goodB), Previous: &v1.PodStatus{Phase: v1.PodFailed}}, want: v1.PodFailed},
		{name: "nor what the API server calls Failed", pod: basePod(ab, fromAPI, func(p *v1.Pod) { p.Status.Phase = v1.PodFailed }), in: Input{Observed: observed(up, good, goodB), Previous: &v1.PodStatus{Phase: v1.PodRunning}}, want: v1.PodFailed},
		{name: "a manifest's own phase counts for nothing", pod: basePod(ab, func(p *v1.Pod) { p.Status.Phase = v1.PodFailed }), want: v1.PodPending},
		{name: "given up", pod: basePod(ab), in: Input{Observed: observed(up, bad, goodB), Failed: &Reason{"DeadlineExceeded", "too long"}}, want: v1.PodFailed},
		{name: "given up before anything ran", pod: basePod(ab), in: Input{Failed: &Reason{"Evicted", "disk"}}, want: v1.PodFailed},
		{name: "given up while something runs", pod: basePod(ab), in: Input{Observed: observed(up, running("a", 0, 1), goodB), Previous: &v1.PodStatus{Phase: v1.PodRunning}, Failed: &Reason{"DeadlineExceeded", "too long"}}, want: v1.PodRunning},
		{name: "given up while init runs", pod: basePod(ab, inits("i")), in: Input{Observed: observed(up, running("i", 0, 1)), Failed: &Reason{"DeadlineExceeded", "too long"}}, want: v1.PodPending},
		{name: "init failed for good while a sidecar runs", pod: basePod([]string{"a"}, sidecars("s"), inits("i"), policy(never)), in: Input{Observed: observed(up, running("s", 0, 1), exited("i", 0, 1, 2, 1, ""))}, want: v1.PodPending},

		{name: "a rule brings a failed container back", pod: basePod([]string{"a"}, policy(never), rules("a", v1.ContainerRestartRuleActionRestart)), in: Input{Observed: observed(up, exited("a", 0, 1, 2, 42, ""))}, want: v1.PodRunning},
		{name: "a rule that does not match leaves it failed", pod: basePod([]string{"a"}, policy(never), rules("a", v1.ContainerRestartRuleActionRestart)), in: Input{Observed: observed(up, bad)}, want: v1.PodFailed},
		{name: "a rule brings a failed init container back", pod: basePod([]string{"a"}, policy(never), inits("i"), rules("i", v1.ContainerRestartRuleActionRestart)), in: Input{Observed: observed(up, exited("i", 0, 1, 2, 42, ""))}, want: v1.PodPending},
		{name: "init's own policy fails the pod", pod: basePod([]string{"a"}, inits("i"), rules("i", v1.ContainerRestartRuleActionRestart)), in: Input{Observed: observed(up, exited("i", 0, 1, 2, 1, ""))}, want: v1.PodFailed},
		{name: "all restart, whatever the others' policy", pod: basePod(ab, policy(never), inits("i"), rules("a", v1.ContainerRestartRuleActionRestartAllContainers)), in: Input{Observed: observed(up, exited("i", 0, 1, 2, 137, ""), exited("a", 0, 1, 2, 42, ""), exited("b", 0, 1, 2, 137, ""))}, want: v1.PodRunning},
		{name: "all restart no more once the pod is stopped", pod: basePod(ab, fromAPI, policy(never), rules("a", v1.ContainerRestartRuleActionRestartAllContainers)), in: Input{Terminated: true, Observed: observed(up, exited("a", 0, 1, 2, 42, ""), exited("b", 0, 1, 2, 137, ""))}, want: v1.PodFailed},
		{name: "a sidecar does not restart a pod that is over", pod: basePod([]string{"a"}, policy(never), sidecars("s"), rules("s", v1.ContainerRestartRuleActionRestartAllContainers)), in: Input{Observed: observed(up, exited("s", 0, 1, 2, 42, ""), good)}, want: v1.PodSucceeded},
		{name: "a sidecar restarts one that is not", pod: basePod(ab, policy(never), sidecars("s"), rules("s", v1.ContainerRestartRuleActionRestartAllContainers)), in: Input{Observed: observed(up, exited("s", 0, 1, 2, 42, ""), good, exited("b", 0, 1, 3, 137, ""))}, want: v1.PodRunning},
		{name: "an ephemeral container does not count", pod: basePod([]string{"a"}, policy(never), ephemerals("e")), in: Input{Observed: observed(up, good, exited("e", 0, 1, 2, 1, ""))}, want: v1.PodSucceeded},
		{name: "but while it runs the pod is not over", pod: basePod([]string{"a"}, policy(never), ephemerals("e")), in: Input{Observed: observed(up, good, running("e", 0, 1)), Previous: &v1.PodStatus{Phase: v1.PodRunning}}, want: v1.PodRunning},

		{name: "stopped, all well", pod: basePod(ab, fromAPI), in: Input{Terminated: true, Observed: observed(good, goodB)}, want: v1.PodSucceeded},
		{name: "stopped, one not well", pod: basePod(ab, fromAPI), in: Input{Terminated: true, Observed: observed(bad, goodB)}, want: v1.PodFailed},
		{name: "stopped before it ran", pod: basePod(ab, fromAPI), in: Input{Terminated: true}, want: v1.PodFailed},
		{name: "a static pod has no end by being stopped", pod: basePod(ab), in: Input{Terminated: true, Observed: observed(good, goodB)}, want: v1.PodRunning},
	} {
		t.Run(r.name, func(t *testing.T) {
			r.in.Pod, r.in.Now = r.pod, at(100)
			if got := Generate(r.in).Phase; got != r.want {
				t.Errorf("phase %s, want %s", got, r.want)
			}
		})
	}
}

// TestContainerState checks the one container a, or the init container i
// where there is one.
func TestContainerState(t *testing.T) {
	a := []string{"a"}
	up := sandbox(0, true)
	waiting := func(reason, message string) v1.ContainerState {
		return v1.ContainerState{Waiting: &v1.ContainerStateWaiting{Reason: reason, Message: message}}
	}
	ended := func(code int32, reason, message, id string, times ...time.Time) v1.ContainerState {
		s := &v1.ContainerStateTerminated{ExitCode: code, Reason: reason, Message: message}
		if id != "" {
			s.ContainerID = "containerd://" + id
		}
		for i, t := range times {
			*[]*metav1.Time{&s.StartedAt, &s.FinishedAt}[i] = metav1.NewTime(t.Truncate(time.Second))
		}
		return v1.ContainerState{Terminated: s}
	}
	wasRunning := &v1.PodStatus{ContainerStatuses: []v1.ContainerStatus{{Name: "a", RestartCount: 2, ContainerID: "containerd://a-2", State: v1.ContainerState{Running: &v1.ContainerStateRunning{}}}}}
	wasEnded := &v1.PodStatus{ContainerStatuses: []v1.ContainerStatus{{Name: "a", RestartCount: 2, ContainerID: "containerd://a-2", State: ended(3, "Error", "told", "a-2")}}}
	notStarted := exited("a", 0, 0, 9, 128, "StartError")
	notStarted.StartedAt, notStarted.Message = time.Time{}, "exec: no such file"
	never := unknown("a", 0, 0)
	never.StartedAt = time.Time{}
	for _, r := range []struct {
		name  string
		pod   *v1.Pod
		in    Input
		state v1.ContainerState
		last  v1.ContainerState
		count int32
		ready bool
	}{
		{name: "not there", state: waiting("ContainerCreating", "")},
		{name: "not there, with init containers", pod: basePod(a, inits("i")), state: waiting("PodInitializing", "")},
		{name: "created", in: Input{Observed: observed(up, created("a", 0))}, state: waiting("ContainerCreating", "")},
		{name: "created and failed to start", in: Input{Observed: observed(up, created("a", 0)), Waiting: map[string]Reason{"a": {"RunContainerError", "why"}}}, state: waiting("RunContainerError", "why")},
		{name: "never started", in: Input{Observed: observed(up, notStarted)}, state: ended(128, "StartError", "exec: no such file", "a-0", time.Time{}, at(9))},
		{name: "the runtime gives no reason", in: Input{Observed: observed(up, exited("a", 0, 1, 2, 0, ""))}, state: ended(0, "Completed", "", "a-0", at(1), at(2))},
		{name: "the runtime gives no reason for a failure", in: Input{Observed: observed(up, exited("a", 0, 1, 2, 7, ""))}, state: ended(7, "Error", "", "a-0", at(1), at(2))},
		{name: "runtime and container both say why", in: Input{Observed: observed(up, notStarted), Messages: map[string]string{"a-0": "bye"}}, state: ended(128, "StartError", "exec: no such file: bye", "a-0", time.Time{}, at(9))},
		{name: "an old message is remembered", in: Input{Observed: observed(up, exited("a", 2, 1, 2, 3, "Error")), Previous: wasEnded}, state: ended(3, "Error", "told", "a-2", at(1), at(2)), count: 2},
		{name: "ended before any wait", in: Input{Observed: observed(up, exited("a", 1, 5, 6, 1, "Error"), exited("a", 0, 1, 2, 0, "Completed"))}, state: ended(1, "Error", "", "a-1", at(5), at(6)), last: ended(0, "Completed", "", "a-0", at(1), at(2)), count: 1},
		{name: "a wait counts not for what runs", in: Input{Observed: observed(up, running("a", 0, 1)), Waiting: map[string]Reason{"a": {"CrashLoopBackOff", ""}}}, state: v1.ContainerState{Running: &v1.ContainerStateRunning{StartedAt: metav1.NewTime(at(1).Truncate(time.Second))}}, ready: true},
		{name: "a wait counts not for what is over", pod: basePod(a, policy(v1.RestartPolicyNever)), in: Input{Observed: observed(up, exited("a", 0, 1, 2, 1, "Error")), Waiting: map[string]Reason{"a": {"CrashLoopBackOff", ""}}}, state: ended(1, "Error", "", "a-0", at(1), at(2))},
		{name: "a wait counts not while the pod is stopped", in: Input{Terminating: true, Observed: observed(up, exited("a", 0, 1, 2, 1, "Error")), Waiting: map[string]Reason{"a": {"CrashLoopBackOff", ""}}}, state: ended(1, "Error", "", "a-0", at(1), at(2))},
		{name: "what runs goes before what is newer", in: Input{Observed: observed(up, created("a", 1), running("a", 0, 1))}, state: v1.ContainerState{Running: &v1.ContainerStateRunning{StartedAt: metav1.NewTime(at(1).Truncate(time.Second))}}, ready: true},
		{name: "unknown", in: Input{Observed: observed(up, unknown("a", 0, 1))}, state: ended(137, "ContainerStatusUnknown", "The container runtime reports the state of the container as unknown", "a-0", at(1))},
		{name: "unknown and never started", in: Input{Observed: observed(up, never)}, state: waiting("ContainerCreating", "")},
		{name: "gone while it ran", in: Input{Observed: observed(up), Previous: wasRunning}, state: waiting("ContainerCreating", ""), last: ended(137, "ContainerStatusUnknown", "The container was running and is not known to the container runtime any more", "a-2"), count: 3},
		{name: "gone while it ran, in a pod being deleted", pod: basePod(a, deleted), in: Input{Observed: observed(up), Previous: wasRunning}, state: waiting("ContainerCreating", ""), last: ended(137, "ContainerStatusUnknown", "The container was running and is not known to the container runtime any more", "a-2"), count: 2},
		{name: "an end for memory that the runtime does not tell", in: Input{Observed: observed(up, exited("a", 2, 1, 2, 137, "Error")), Previous: &v1.PodStatus{ContainerStatuses: []v1.ContainerStatus{{Name: "a", RestartCount: 2, ContainerID: "containerd://a-2", State: ended(137, "OOMKilled", "", "a-2")}}}}, state: ended(137, "OOMKilled", "", "a-2", at(1), at(2)), count: 2},
		{name: "gone after its end", in: Input{Observed: observed(up), Previous: wasEnded}, state: ended(3, "Error", "told", "a-2"), count: 2},
		{name: "the end that only the old status knows", in: Input{Observed: observed(up, running("a", 0, 9)), Previous: wasEnded}, state: v1.ContainerState{Running: &v1.ContainerStateRunning{StartedAt: metav1.NewTime(at(9).Truncate(time.Second))}}, last: ended(3, "Error", "told", "a-2"), count: 3, ready: true},
		{name: "a hostile restart count", in: Input{Observed: observed(up, func() container.Container { c := created("a", 0); c.RestartCount = int(^uint(0) >> 1); return c }())}, state: waiting("ContainerCreating", ""), count: 1<<31 - 1},
		{name: "stopped without a trace", pod: basePod(a, fromAPI), in: Input{Terminated: true, Previous: wasRunning}, state: ended(137, "ContainerStatusUnknown", "The container could not be located when the pod was terminated", "a-2"), last: ended(137, "ContainerStatusUnknown", "The container was running and is not known to the container runtime any more", "a-2"), count: 3},
		{name: "stopped before init was done", pod: basePod(a, inits("i")), in: Input{Terminated: true, Observed: observed(exited("i", 0, 1, 2, 1, "Error"))}, state: waiting("PodInitializing", "")},
		{name: "a probe that fails", in: Input{Observed: observed(up, running("a", 0, 1)), Probes: map[string]pod.ProbeResult{"a-0": {Started: true}}}, state: v1.ContainerState{Running: &v1.ContainerStateRunning{StartedAt: metav1.NewTime(at(1).Truncate(time.Second))}}},
	} {
		t.Run(r.name, func(t *testing.T) {
			r.in.Pod, r.in.Now = r.pod, at(100)
			if r.pod == nil {
				r.in.Pod = basePod(a)
			}
			got := Generate(r.in).ContainerStatuses[0]
			want := v1.ContainerStatus{State: r.state, LastTerminationState: r.last, RestartCount: r.count, Ready: r.ready}
			have := v1.ContainerStatus{State: got.State, LastTerminationState: got.LastTerminationState, RestartCount: got.RestartCount, Ready: got.Ready}
			if d := gocmp.Diff(want, have); d != "" {
				t.Errorf("status (-want +got):\n%s", d)
			}
		})
	}
}

func TestInitContainerState(t *testing.T) {
	got := Generate(Input{Pod: basePod([]string{"a"}, inits("i", "j")), Now: at(9), Observed: observed(sandbox(0, true), running("a", 0, 5))})
	for _, s := range got.InitContainerStatuses {
		if s.State.Terminated == nil || s.State.Terminated.Reason != "Completed" || !s.Ready {
			t.Errorf("init container %s is not taken as completed: %+v", s.Name, s)
		}
	}
	got = Generate(Input{
		Pod: basePod([]string{"a"}, inits("i")), Now: at(9), Observed: observed(sandbox(0, true), exited("i", 0, 1, 2, 0, "")),
		Waiting: map[string]Reason{"i": {"CrashLoopBackOff", "stale"}},
	})
	if s := got.InitContainerStatuses[0]; s.State.Terminated == nil || !s.Ready {
		t.Errorf("an init container that is done waits: %+v", s)
	}
	got = Generate(Input{
		Pod: basePod([]string{"a"}, inits("i", "j", "k")), Now: at(9), Terminated: true,
		Observed: observed(exited("i", 0, 1, 2, 0, ""), running("j", 0, 3)),
	})
	var words []string
	for _, s := range got.InitContainerStatuses {
		switch {
		case s.State.Terminated != nil:
			words = append(words, s.State.Terminated.Reason)
		case s.State.Waiting != nil:
			words = append(words, s.State.Waiting.Reason)
		}
	}
	if d := gocmp.Diff([]string{"Completed", "ContainerStatusUnknown", "PodInitializing"}, words); d != "" {
		t.Errorf("init containers of a stopped pod (-want +got):\n%s", d)
	}
}

func TestConditions(t *testing.T) {
	gate := v1.PodConditionType("example.com/gate")
	gated := func(p *v1.Pod) { p.Spec.ReadinessGates = []v1.PodReadinessGate{{ConditionType: gate}} }
	has := func(types ...v1.PodCondition) func(*v1.Pod) {
		return func(p *v1.Pod) { p.Status.Conditions = types }
	}
	runs := observed(sandbox(0, true), running("a", 0, 1))
	for _, r := range []struct {
		name string
		pod  *v1.Pod
		in   Input
		want []string // type=status reason message
	}{
		{
			name: "a failed pod", pod: basePod([]string{"a"}, policy(v1.RestartPolicyNever)), in: Input{Observed: observed(sandbox(0, true), exited("a", 0, 1, 2, 1, ""))},
			want: []string{"PodReadyToStartContainers=True", "Initialized=True", "Ready=False PodFailed", "ContainersReady=False PodFailed", "PodScheduled=True"},
		},
		{
			name: "the network mode does not fit", pod: basePod([]string{"a"}, func(p *v1.Pod) { p.Spec.HostNetwork = true }), in: Input{Observed: runs},
			want: []string{"PodReadyToStartContainers=False", "Initialized=True", "Ready=True", "ContainersReady=True", "PodScheduled=True"},
		},
		{
			name: "a sidecar that is not ready", pod: basePod([]string{"a"}, sidecars("s")), in: Input{Observed: observed(sandbox(0, true), running("s", 0, 1)), Probes: map[string]pod.ProbeResult{"s-0": {Started: true}}},
			want: []string{"PodReadyToStartContainers=True", "Initialized=True", "Ready=False ContainersNotReady containers with unready status: [s a]", "ContainersReady=False ContainersNotReady containers with unready status: [s a]", "PodScheduled=True"},
		},
		{
			name: "a sidecar that has not started", pod: basePod([]string{"a"}, sidecars("s")), in: Input{Observed: observed(sandbox(0, true), created("s", 0))},
			want: []string{"PodReadyToStartContainers=True", "Initialized=False ContainersNotInitialized containers with incomplete status: [s]", "Ready=False ContainersNotReady containers with unready status: [s a]", "ContainersReady=False ContainersNotReady containers with unready status: [s a]", "PodScheduled=True"},
		},
		{
			name: "a gate without its condition", pod: basePod([]string{"a"}, gated), in: Input{Observed: runs},
			want: []string{"PodReadyToStartContainers=True", "Initialized=True", "Ready=False ReadinessGatesNotReady corresponding condition of pod readiness gate \"example.com/gate\" does not exist.", "ContainersReady=True", "PodScheduled=True"},
		},
		{
			name: "a gate that is closed, and a foreign condition that is kept", pod: basePod([]string{"a"}, fromAPI, gated, has(v1.PodCondition{Type: gate, Status: v1.ConditionFalse}, v1.PodCondition{Type: v1.PodReady, Status: v1.ConditionTrue, Reason: "Stale"})), in: Input{Observed: runs},
			want: []string{"example.com/gate=False", "PodReadyToStartContainers=True", "Initialized=True", "Ready=False ReadinessGatesNotReady the status of pod readiness gate \"example.com/gate\" is not \"True\", but False", "ContainersReady=True", "PodScheduled=True"},
		},
		{
			name: "a gate that is open", pod: basePod([]string{"a"}, fromAPI, gated, has(v1.PodCondition{Type: gate, Status: v1.ConditionTrue})), in: Input{Observed: runs},
			want: []string{"example.com/gate=True", "PodReadyToStartContainers=True", "Initialized=True", "Ready=True", "ContainersReady=True", "PodScheduled=True"},
		},
		{
			name: "a disruption is kept once", pod: basePod([]string{"a"}, fromAPI, has(v1.PodCondition{Type: v1.DisruptionTarget, Status: v1.ConditionFalse})),
			in:   Input{Observed: runs, Previous: &v1.PodStatus{Conditions: []v1.PodCondition{{Type: v1.DisruptionTarget, Status: v1.ConditionTrue, Reason: "TerminationByKubelet"}}}},
			want: []string{"DisruptionTarget=True TerminationByKubelet", "PodReadyToStartContainers=True", "Initialized=True", "Ready=True", "ContainersReady=True", "PodScheduled=True"},
		},
		{
			name: "a pod that the node ended tells so once it is over", pod: basePod([]string{"a"}, policy(v1.RestartPolicyNever)),
			in:   Input{Observed: observed(sandbox(0, true), exited("a", 0, 1, 2, 137, "")), Failed: &Reason{"Evicted", "m"}, Disruption: &Reason{"TerminationByKubelet", "The node was low on resource: memory."}},
			want: []string{"DisruptionTarget=True TerminationByKubelet The node was low on resource: memory.", "PodReadyToStartContainers=True", "Initialized=True", "Ready=False PodFailed", "ContainersReady=False PodFailed", "PodScheduled=True"},
		},
		{
			name: "but not while it runs, though it is not ready any more", pod: basePod([]string{"a"}),
			in:   Input{Observed: runs, Failed: &Reason{"Evicted", "m"}, Disruption: &Reason{"TerminationByKubelet", "m"}},
			want: []string{"PodReadyToStartContainers=True", "Initialized=True", "Ready=False PodFailed", "ContainersReady=False PodFailed", "PodScheduled=True"},
		},
		{
			name: "a disruption that the API server ruled out comes nevertheless", pod: basePod([]string{"a"}, fromAPI, has(v1.PodCondition{Type: v1.DisruptionTarget, Status: v1.ConditionFalse})),
			in:   Input{Failed: &Reason{"Evicted", "m"}, Disruption: &Reason{"TerminationByKubelet", "m"}},
			want: []string{"DisruptionTarget=True TerminationByKubelet m", "PodReadyToStartContainers=False", "Initialized=True", "Ready=False PodFailed", "ContainersReady=False PodFailed", "PodScheduled=True"},
		},
		{
			name: "a pod stays initialized while its init containers run again", pod: basePod([]string{"a"}, inits("i")),
			in:   Input{Observed: observed(sandbox(1, true), in("s1", running("i", 1, 9))), Previous: &v1.PodStatus{Conditions: []v1.PodCondition{{Type: v1.PodInitialized, Status: v1.ConditionTrue}}}},
			want: []string{"PodReadyToStartContainers=True", "Initialized=True", "Ready=False ContainersNotReady containers with unready status: [a]", "ContainersReady=False ContainersNotReady containers with unready status: [a]", "PodScheduled=True"},
		},
		{
			name: "a sidecar that runs and is not ready", pod: basePod([]string{"a"}, sidecars("s")),
			in:   Input{Observed: observed(sandbox(0, true), running("s", 0, 1), running("a", 0, 1)), Probes: map[string]pod.ProbeResult{"s-0": {Started: true}}},
			want: []string{"PodReadyToStartContainers=True", "Initialized=True", "Ready=False ContainersNotReady containers with unready status: [s]", "ContainersReady=False ContainersNotReady containers with unready status: [s]", "PodScheduled=True"},
		},
		{
			name: "all containers restart", pod: basePod([]string{"a"}, rules("a", v1.ContainerRestartRuleActionRestartAllContainers)), in: Input{Observed: observed(sandbox(0, true), exited("a", 0, 1, 2, 42, ""))},
			want: []string{"PodReadyToStartContainers=True", "Initialized=True", "Ready=False ContainersNotReady containers with unready status: [a]", "ContainersReady=False ContainersNotReady containers with unready status: [a]", "PodScheduled=True", "AllContainersRestarting=True RestartAllContainersStarted container exited with restart policy rule"},
		},
		{
			name: "no container restarts of a pod that is over", pod: basePod([]string{"a"}, rules("a", v1.ContainerRestartRuleActionRestartAllContainers)), in: Input{Observed: observed(sandbox(0, true), exited("a", 0, 1, 2, 41, ""))},
			want: []string{"PodReadyToStartContainers=True", "Initialized=True", "Ready=False PodFailed", "ContainersReady=False PodFailed", "PodScheduled=True", "AllContainersRestarting=False PodFailed"},
		},
		{
			name: "a manifest's own conditions count for nothing", pod: basePod([]string{"a"}, gated, has(v1.PodCondition{Type: gate, Status: v1.ConditionTrue})), in: Input{Observed: runs},
			want: []string{"PodReadyToStartContainers=True", "Initialized=True", "Ready=False ReadinessGatesNotReady corresponding condition of pod readiness gate \"example.com/gate\" does not exist.", "ContainersReady=True", "PodScheduled=True"},
		},
	} {
		t.Run(r.name, func(t *testing.T) {
			r.in.Pod, r.in.Now = r.pod, at(100)
			var got []string
			for _, c := range Generate(r.in).Conditions {
				got = append(got, strings.TrimSpace(string(c.Type)+"="+string(c.Status)+" "+strings.TrimSpace(c.Reason+" "+c.Message)))
			}
			if d := gocmp.Diff(r.want, got); d != "" {
				t.Errorf("conditions (-want +got):\n%s", d)
			}
		})
	}
}

func TestWholePod(t *testing.T) {
	start := metav1.NewTime(at(-50).Truncate(time.Second))
	for _, r := range []struct {
		name string
		in   Input
		want v1.PodStatus // without conditions and containers
	}{
		{
			name: "rejected", in: Input{Pod: basePod([]string{"a"}), Rejected: &Reason{"PodFeatureUnsupported", "spec.volumes[0].nfs: not built"}},
			want: v1.PodStatus{ObservedGeneration: 1, Phase: v1.PodFailed, Reason: "PodFeatureUnsupported", Message: "Pod was rejected: spec.volumes[0].nfs: not built", QOSClass: v1.PodQOSBestEffort, StartTime: &metav1.Time{Time: at(100).Truncate(time.Second)}},
		},
		{
			name: "given up twice keeps the first reason",
			in:   Input{Pod: basePod([]string{"a"}), Failed: &Reason{"Evicted", "later"}, Previous: &v1.PodStatus{Phase: v1.PodFailed, Reason: "DeadlineExceeded", Message: "first", StartTime: &start}},
			want: v1.PodStatus{ObservedGeneration: 1, Phase: v1.PodFailed, Reason: "DeadlineExceeded", Message: "first", QOSClass: v1.PodQOSBestEffort, StartTime: &start},
		},
		{
			name: "the API server's start and reason",
			in: Input{Pod: basePod([]string{"a"}, fromAPI, func(p *v1.Pod) {
				p.Status = v1.PodStatus{Phase: v1.PodPending, Reason: "Known", StartTime: &start}
			}), Previous: &v1.PodStatus{}},
			want: v1.PodStatus{ObservedGeneration: 1, Phase: v1.PodPending, Reason: "Known", QOSClass: v1.PodQOSBestEffort, StartTime: &start},
		},
		{
			name: "a generation seen before is not taken back",
			in:   Input{Pod: basePod([]string{"a"}), Previous: &v1.PodStatus{ObservedGeneration: 7, StartTime: &start}},
			want: v1.PodStatus{ObservedGeneration: 7, Phase: v1.PodPending, QOSClass: v1.PodQOSBestEffort, StartTime: &start},
		},
	} {
		t.Run(r.name, func(t *testing.T) {
			r.in.Now = at(100)
			got := Generate(r.in)
			got.Conditions, got.ContainerStatuses = nil, nil
			if d := gocmp.Diff(r.want, got); d != "" {
				t.Errorf("status (-want +got):\n%s", d)
			}
		})
	}
}

func TestAddresses(t *testing.T) {
	type ips struct{ Host, Pod string }
	hostNetwork := basePod([]string{"a"}, func(p *v1.Pod) { p.Spec.HostNetwork = true })
	with := func(attempt uint32, ready bool, ips ...string) container.Sandbox {
		s := sandbox(attempt, ready)
		s.IPs = ips
		return s
	}
	before := &v1.PodStatus{
		HostIP: "192.168.1.7", HostIPs: []v1.HostIP{{IP: "192.168.1.7"}},
		PodIP: "10.0.0.9", PodIPs: []v1.PodIP{{IP: "10.0.0.9"}},
	}
	for _, r := range []struct {
		name string
		in   Input
		want ips
	}{
		{name: "none", want: ips{}},
		{name: "the node's are kept", in: Input{Previous: before}, want: ips{Host: "192.168.1.7"}},
		{name: "the node's change", in: Input{Previous: before, HostIPs: []string{"192.168.1.8", "fd00::8"}}, want: ips{Host: "192.168.1.8,fd00::8"}},
		{name: "one of each family", in: Input{Observed: observed(with(0, true, "10.0.0.2", "10.0.0.3", "fd00::2", "fd00::3"))}, want: ips{Pod: "10.0.0.2,fd00::2"}},
		{name: "the node's family comes first", in: Input{HostIPs: []string{"fd00::1", "192.168.1.7"}, Observed: observed(with(0, true, "10.0.0.2", "fd00::2"))}, want: ips{Host: "fd00::1,192.168.1.7", Pod: "fd00::2,10.0.0.2"}},
		{name: "what is no address is left out", in: Input{HostIPs: []string{"nonsense"}, Observed: observed(with(0, true, "nonsense", "::ffff:10.0.0.2", "fe80::1%eth0"))}, want: ips{Pod: "10.0.0.2,fe80::1"}},
		{name: "the newest sandbox counts", in: Input{Observed: observed(with(0, true, "10.0.0.2"), with(1, true, "10.0.0.3"))}, want: ips{Pod: "10.0.0.3"}},
		{name: "a stopped pod keeps its own", in: Input{Previous: before, Observed: observed(with(0, false))}, want: ips{Host: "192.168.1.7", Pod: "10.0.0.9"}},
		{name: "a pod between two sandboxes has none", in: Input{Previous: before, Observed: observed(with(0, true, "10.0.0.2"), with(1, false))}, want: ips{Host: "192.168.1.7"}},
		{name: "the host's network", in: Input{Pod: hostNetwork, HostIPs: []string{"192.168.1.7"}}, want: ips{Host: "192.168.1.7", Pod: "192.168.1.7"}},
		{name: "the host's network while the node has no address", in: Input{Pod: hostNetwork, Previous: before}, want: ips{Host: "192.168.1.7", Pod: "10.0.0.9"}},
	} {
		t.Run(r.name, func(t *testing.T) {
			if r.in.Pod == nil {
				r.in.Pod = basePod([]string{"a"})
			}
			r.in.Now = at(100)
			s := Generate(r.in)
			var host, pods []string
			for _, ip := range s.HostIPs {
				host = append(host, ip.IP)
			}
			for _, ip := range s.PodIPs {
				pods = append(pods, ip.IP)
			}
			got := ips{strings.Join(host, ","), strings.Join(pods, ",")}
			if d := gocmp.Diff(r.want, got); d != "" {
				t.Errorf("addresses (-want +got):\n%s", d)
			}
			if host, _, _ := strings.Cut(got.Host, ","); host != s.HostIP {
				t.Errorf("hostIP %q, want %q", s.HostIP, host)
			}
			if ip, _, _ := strings.Cut(got.Pod, ","); ip != s.PodIP {
				t.Errorf("podIP %q, want %q", s.PodIP, ip)
			}
		})
	}
}

func TestTrim(t *testing.T) {
	for _, r := range []struct {
		name, text, want string
		limit            int
	}{
		{name: "short", text: "abc", limit: 3, want: "abc"},
		{name: "long", text: "abcd", limit: 3, want: "abc"},
		{name: "within a character", text: "aéé", limit: 4, want: "aé"},
		{name: "not UTF-8", text: "a\xffb", limit: 10, want: "a\uFFFDb"},
		{name: "nothing fits", text: "é", limit: 1, want: ""},
	} {
		t.Run(r.name, func(t *testing.T) {
			if got := trim(r.text, r.limit); got != r.want {
				t.Errorf("trim is %q, want %q", got, r.want)
			}
		})
	}
	long := strings.Repeat("x", 10000)
	s := Generate(Input{
		Pod: basePod([]string{"a", "b"}), Now: at(9), Messages: map[string]string{"a-0": long, "a-1": long},
		Observed: observed(sandbox(0, true), exited("a", 1, 1, 2, 1, ""), exited("a", 0, 1, 2, 1, "")),
	})
	a := s.ContainerStatuses[0]
	if now, last := len(a.State.Terminated.Message), len(a.LastTerminationState.Terminated.Message); now != 6144 || last != 6144 {
		t.Errorf("messages have %d and %d bytes, want 6144", now, last)
	}
}

// TestRandom generates from random observations: nothing panics, the input
// stays as it is, the phase never leaves an end, and a status generated upon
// itself does not change.
func TestRandom(t *testing.T) {
	policies := []v1.RestartPolicy{v1.RestartPolicyAlways, v1.RestartPolicyOnFailure, v1.RestartPolicyNever}
	for seed := range uint64(1000) {
		r := rand.New(rand.NewPCG(seed, 2))
		p := basePod([]string{"b", "a"}, policy(policies[r.IntN(3)]))
		sidecars([]string{"s"}[:r.IntN(2)]...)(p)
		inits([]string{"i", "j"}[:r.IntN(3)]...)(p)
		ephemerals([]string{"x"}[:r.IntN(2)]...)(p)
		if r.IntN(2) == 0 {
			fromAPI(p)
		}
		if r.IntN(2) == 0 {
			rules("a", v1.ContainerRestartRuleActionRestartAllContainers)(p)
			probed("b")(p)
		}
		var previous *v1.PodStatus
		for range 8 {
			parts := []any{}
			for n := range r.IntN(3) {
				parts = append(parts, sandbox(uint32(n), r.IntN(2) == 0))
			}
			for n := range r.IntN(8) {
				name := []string{"a", "b", "i", "j", "s", "x"}[r.IntN(6)]
				c := one(name, n, container.State(r.IntN(4)))
				if c.State != container.StateCreated && r.IntN(4) > 0 {
					c.StartedAt = at(r.IntN(50))
				}
				if c.State == container.StateExited {
					c.FinishedAt, c.ExitCode = at(r.IntN(50)), []int32{0, 1, 42}[r.IntN(3)]
				}
				parts = append(parts, c)
			}
			in := Input{Pod: p, Observed: observed(parts...), Previous: previous, Now: at(100), Terminating: r.IntN(8) == 0, Terminated: r.IntN(8) == 0}
			if r.IntN(2) == 0 {
				in.Waiting = map[string]Reason{"a": {"CrashLoopBackOff", "m"}, "i": {"ErrImagePull", "m"}}
			}
			if r.IntN(8) == 0 {
				in.Failed, in.Disruption = &Reason{"Evicted", "m"}, &Reason{"TerminationByKubelet", "m"}
			}
			before, podBefore := previous.DeepCopy(), p.DeepCopy()
			got := Generate(in)
			if !equality.Semantic.DeepEqual(before, previous) || !equality.Semantic.DeepEqual(podBefore, p) {
				t.Fatalf("seed %d: the input changed:\n%s", seed, gocmp.Diff(before, previous)+gocmp.Diff(podBefore, p))
			}
			if previous != nil && pod.IsTerminal(previous.Phase) && got.Phase != previous.Phase {
				t.Fatalf("seed %d: from %s to %s", seed, previous.Phase, got.Phase)
			}
			in.Previous, in.Now = &got, at(200)
			if again := Generate(in); !equality.Semantic.DeepEqual(got, again) {
				t.Fatalf("seed %d: generated upon itself it changes:\n%s", seed, gocmp.Diff(got, again))
			}
			previous = &got
		}
	}
}

// TestProbeResults checks started and ready of the one running container a.
func TestProbeResults(t *testing.T) {
	was := func(id string, started, ready bool) *v1.PodStatus {
		return &v1.PodStatus{ContainerStatuses: []v1.ContainerStatus{{
			Name: "a", ContainerID: "containerd://" + id, Started: &started, Ready: ready,
			State: v1.ContainerState{Running: &v1.ContainerStateRunning{}},
		}}}
	}
	plain, withProbes := basePod([]string{"a"}), basePod([]string{"a"}, probed("a"))
	for _, r := range []struct {
		name           string
		pod            *v1.Pod
		in             Input
		started, ready bool
	}{
		{name: "no probes", pod: plain, started: true, ready: true},
		{name: "probes that did not run yet", pod: withProbes},
		{name: "results", pod: withProbes, in: Input{Probes: map[string]pod.ProbeResult{"a-0": {Started: true, Ready: true}}}, started: true, ready: true},
		{name: "results without probes are of hooks", pod: plain, in: Input{Probes: map[string]pod.ProbeResult{"a-0": {}}}},
		{name: "ready counts not before started", pod: plain, in: Input{Probes: map[string]pod.ProbeResult{"a-0": {Ready: true}}}},
		{name: "results of another container", pod: withProbes, in: Input{Probes: map[string]pod.ProbeResult{"a-1": {Started: true, Ready: true}}}},
		{name: "what was known stays", pod: withProbes, in: Input{Previous: was("a-0", true, true)}, started: true, ready: true},
		{name: "what was known may be not ready", pod: withProbes, in: Input{Previous: was("a-0", true, false)}, started: true},
		{name: "results go before what was known", pod: withProbes, in: Input{Previous: was("a-0", true, true), Probes: map[string]pod.ProbeResult{"a-0": {Started: true}}}, started: true},
		{name: "what was known of another container", pod: withProbes, in: Input{Previous: was("a-1", true, true)}},
	} {
		t.Run(r.name, func(t *testing.T) {
			r.in.Pod, r.in.Now, r.in.Observed = r.pod, at(9), observed(sandbox(0, true), running("a", 0, 1))
			s := Generate(r.in).ContainerStatuses[0]
			if *s.Started != r.started || s.Ready != r.ready {
				t.Errorf("started %v and ready %v, want %v and %v", *s.Started, s.Ready, r.started, r.ready)
			}
		})
	}
}

func TestEphemeral(t *testing.T) {
	p := basePod([]string{"a"}, inits("i"), ephemerals("f", "e", "g"))
	got := Generate(Input{
		Pod: p, Now: at(9), Waiting: map[string]Reason{"g": {"ErrImagePull", "m"}, "f": {"CrashLoopBackOff", "m"}},
		Observed: observed(sandbox(0, true), running("e", 0, 3), exited("f", 0, 1, 2, 1, "Error")), Messages: map[string]string{"f-0": "bye"},
	})
	words := []string{}
	for _, s := range got.EphemeralContainerStatuses {
		word := s.Name
		switch {
		case s.State.Running != nil:
			word += " runs"
		case s.State.Terminated != nil:
			word += " ended " + s.State.Terminated.Message
		default:
			word += " waits " + s.State.Waiting.Reason
		}
		words = append(words, word)
		if s.Started != nil || s.Ready {
			t.Errorf("%s has no probes, but is started %v and ready %v", s.Name, s.Started, s.Ready)
		}
	}
	if d := gocmp.Diff([]string{"e runs", "f ended bye", "g waits ErrImagePull"}, words); d != "" {
		t.Errorf("ephemeral containers (-want +got):\n%s", d)
	}
}

func TestVolumeMounts(t *testing.T) {
	const enabled, disabled = v1.RecursiveReadOnlyEnabled, v1.RecursiveReadOnlyDisabled
	for _, r := range []struct {
		name     string
		mount    v1.VolumeMount
		supports bool
		want     *v1.RecursiveReadOnlyMode
	}{
		{name: "writable", mount: v1.VolumeMount{}, supports: true},
		{name: "not asked for", mount: v1.VolumeMount{ReadOnly: true}, supports: true, want: new(disabled)},
		{name: "asked not to", mount: v1.VolumeMount{ReadOnly: true, RecursiveReadOnly: new(disabled)}, supports: true, want: new(disabled)},
		{name: "asked for", mount: v1.VolumeMount{ReadOnly: true, RecursiveReadOnly: new(enabled)}, supports: true, want: new(enabled)},
		{name: "if possible, and it is", mount: v1.VolumeMount{ReadOnly: true, RecursiveReadOnly: new(v1.RecursiveReadOnlyIfPossible)}, supports: true, want: new(enabled)},
		{name: "if possible, and it is not", mount: v1.VolumeMount{ReadOnly: true, RecursiveReadOnly: new(v1.RecursiveReadOnlyIfPossible)}, want: new(disabled)},
		{name: "with propagation", mount: v1.VolumeMount{ReadOnly: true, RecursiveReadOnly: new(enabled), MountPropagation: new(v1.MountPropagationHostToContainer)}, supports: true, want: new(disabled)},
		{name: "with none", mount: v1.VolumeMount{ReadOnly: true, RecursiveReadOnly: new(enabled), MountPropagation: new(v1.MountPropagationNone)}, supports: true, want: new(enabled)},
	} {
		t.Run(r.name, func(t *testing.T) {
			p := basePod([]string{"a"}, func(p *v1.Pod) { p.Spec.Containers[0].VolumeMounts = []v1.VolumeMount{r.mount} })
			got := Generate(Input{Pod: p, Now: at(9), RecursiveReadOnly: r.supports}).ContainerStatuses[0].VolumeMounts[0]
			if d := gocmp.Diff(r.want, got.RecursiveReadOnly); d != "" {
				t.Errorf("recursive read-only (-want +got):\n%s", d)
			}
		})
	}
}

// TestPassedOn checks the values that the status has unchanged.
func TestPassedOn(t *testing.T) {
	user := &v1.ContainerUser{Linux: &v1.LinuxContainerUser{UID: 1000, GID: 2000}}
	c := running("a", 0, 3)
	c.User = user
	p := basePod([]string{"a"}, furnished, func(p *v1.Pod) {
		p.Spec.Resources = &v1.ResourceRequirements{Requests: v1.ResourceList{v1.ResourceCPU: resource.MustParse("100m")}}
	})
	got := Generate(Input{Pod: p, Now: at(9), Observed: observed(sandbox(0, true), c)})
	if d := gocmp.Diff(user, got.ContainerStatuses[0].User); d != "" {
		t.Errorf("user (-want +got):\n%s", d)
	}
	want := v1.ResourceList{v1.ResourceCPU: resource.MustParse("100m"), v1.ResourceMemory: resource.MustParse("16Mi")}
	if d := gocmp.Diff(&v1.ResourceRequirements{Requests: want}, got.Resources); d != "" {
		t.Errorf("the pod's resources (-want +got):\n%s", d)
	}
	if d := gocmp.Diff(want, got.AllocatedResources); d != "" {
		t.Errorf("allocated resources (-want +got):\n%s", d)
	}
}

func BenchmarkGenerate(b *testing.B) {
	in := Input{
		Pod: basePod([]string{"a", "b"}, inits("i")), Now: at(9), HostIPs: []string{"192.168.1.7"},
		Observed: observed(sandbox(0, true), exited("i", 0, 1, 2, 0, ""), running("a", 0, 3), running("b", 0, 3)),
	}
	s := Generate(in)
	in.Previous = &s
	b.ReportAllocs()
	for b.Loop() {
		Generate(in)
	}
}
