package agent

import (
	"slices"
	"sync/atomic"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
)

func TestProblems(t *testing.T) {
	is := func(text string) func() string { return func() string { return text } }
	for _, row := range [][3]string{{"", "", ""}, {"a", "", "a"}, {"", "b", "b"}, {"a", "b", "a; b"}} {
		if got := problems(is(row[0]), is(row[1]))(); got != row[2] {
			t.Errorf("%q and %q: %q", row[0], row[1], got)
		}
	}
}

// TestPodsWaitForTheNetwork has pods wait, without an attempt and without a backoff, until the
// runtime's network is ready. Pods with hostNetwork do not need it.
func TestPodsWaitForTheNetwork(t *testing.T) {
	bubble(t, func(t *testing.T, l *lab) {
		const problem = "container runtime network not ready: NetworkReady=false reason:NetworkPluginNotReady message:cni plugin not initialized"
		var ready atomic.Bool
		l.prepare = func(a *agent) {
			a.syncer.NetworkProblem = func() string {
				if ready.Load() {
					return ""
				}
				return problem
			}
		}
		web, host := shell(t, "web", "Always", "sleep infinity"), shell(t, "host", "Always", "sleep infinity")
		host.Spec.HostNetwork = true
		l.want(web, host)
		l.start()
		l.settle(5 * time.Minute)
		if got := l.status(host.UID).Phase; got != v1.PodRunning {
			t.Errorf("the pod with hostNetwork is %s", got)
		}
		st := l.status(web.UID)
		if st.Phase != v1.PodPending || len(st.ContainerStatuses) != 1 || st.ContainerStatuses[0].State.Waiting.Reason != "ContainerCreating" {
			t.Errorf("the pod without is %+v", st)
		}
		if n := l.runtime.Count("RunPodSandbox"); n != 1 {
			t.Errorf("%d sandboxes were requested, want that of the pod with hostNetwork", n)
		}
		if got := l.reasons(web.Name); !slices.Equal(got, []string{"NetworkNotReady"}) {
			t.Errorf("events %v", got)
		}
		ready.Store(true)
		l.agent.wakeAll()
		l.settle(time.Second)
		if got := l.status(web.UID).Phase; got != v1.PodRunning {
			t.Errorf("a second after the network is ready the pod is %s", got)
		}
		// A running pod does not need the runtime's network again.
		ready.Store(false)
		l.agent.wakeAll()
		l.settle(time.Minute)
		if got := l.status(web.UID).Phase; got != v1.PodRunning || l.runtime.Count("RunPodSandbox") != 2 {
			t.Errorf("the running pod is %s", got)
		}
	})
}
