package agent

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/tinylet/tinylet/agent/container"
	"github.com/tinylet/tinylet/agent/container/fake"
	"github.com/tinylet/tinylet/agent/pod"
	"github.com/tinylet/tinylet/agent/source"
)

const webManifest = `
apiVersion: v1
kind: Pod
metadata: {name: web}
spec:
  terminationGracePeriodSeconds: 2
  initContainers:
  - {name: prepare, image: "localhost/busybox:1", command: [sh, -c, "sleep 1; exit 0"]}
  containers:
  - {name: server, image: "localhost/busybox:1", command: [sh, -c, "sleep infinity"], volumeMounts: [{name: www, mountPath: /www}]}
  - {name: visitor, image: "localhost/busybox:1", command: [sh, -c, "sleep infinity"]}
  volumes: [{name: www, emptyDir: {}}]
`

func TestThreePodsReachTheirStates(t *testing.T) {
	bubble(t, func(t *testing.T, l *lab) {
		web, crash, once := parse(t, webManifest)[0], shell(t, "crash", "Always", "exit 3"), shell(t, "once", "Never", "exit 0")
		l.want(web, crash, once)
		l.start()
		l.settle(25 * time.Second)

		st := l.status(web.UID)
		if st.Phase != v1.PodRunning || len(st.ContainerStatuses) != 2 || !st.ContainerStatuses[0].Ready || !st.ContainerStatuses[1].Ready {
			t.Errorf("web: %+v", st)
		}
		st = l.status(crash.UID)
		if w := st.ContainerStatuses[0].State.Waiting; st.Phase != v1.PodRunning || w == nil || w.Reason != "CrashLoopBackOff" {
			t.Errorf("crash: %+v", st)
		}
		st = l.status(once.UID)
		if st.Phase != v1.PodSucceeded || st.ContainerStatuses[0].State.Terminated == nil || st.ContainerStatuses[0].State.Terminated.Reason != "Completed" {
			t.Errorf("once: %+v", st)
		}
		want := []string{"web-board/server", "web-board/visitor"}
		if got := slices.Sorted(maps.Keys(l.running())); !slices.Equal(got, want) {
			t.Errorf("running: %v", got)
		}
	})
}

// TestCrashLoopBacksOff counts the starts of a container that fails at once:
// at 0, 0, 10, 30, 70, 150, 310, 610, 910 ... seconds.
func TestCrashLoopBacksOff(t *testing.T) {
	bubble(t, func(t *testing.T, l *lab) {
		crash := shell(t, "crash", "Always", "exit 3")
		l.want(crash)
		l.start()
		for _, step := range []struct {
			until  time.Duration
			starts int
		}{{5 * time.Second, 2}, {20 * time.Second, 3}, {60 * time.Second, 4}, {140 * time.Second, 5}, {300 * time.Second, 6}, {600 * time.Second, 7}, {900 * time.Second, 8}} {
			l.settle(step.until - l.since())
			if got := l.runtime.Count("StartContainer"); got != step.starts {
				t.Errorf("%d starts after %v, want %d", got, step.until, step.starts)
			}
		}
		if _, containers := l.objects(); containers != 2 {
			t.Errorf("%d containers are kept, want the newest and one before", containers)
		}
	})
}

// TestKilledAtEveryStep kills the agent at each call that it makes while two
// pods start, before the call has its effect and after, and starts another.
func TestKilledAtEveryStep(t *testing.T) {
	wanted := func(t *testing.T) []*v1.Pod {
		return []*v1.Pod{parse(t, webManifest)[0], shell(t, "other", "Always", "sleep infinity")}
	}
	calls := 0
	bubble(t, func(t *testing.T, l *lab) {
		l.want(wanted(t)...)
		l.start()
		l.settle(10 * time.Second)
		calls = len(l.runtime.Calls())
	})
	if calls < 30 {
		t.Fatalf("only %d calls start two pods", calls)
	}
	for n := range calls {
		for _, late := range []bool{false, true} {
			t.Run(fmt.Sprintf("call %d late=%v", n, late), func(t *testing.T) {
				bubble(t, func(t *testing.T, l *lab) {
					l.want(wanted(t)...)
					remove := l.runtime.Inject("*", fake.Fault{Hang: true, Late: late, Skip: n, Times: 1})
					l.start()
					l.settle(10 * time.Second)
					before := l.running()
					l.kill()
					remove() // it is for the first life only
					l.start()
					l.settle(time.Minute)
					wantAdopted(t, l, before)
				})
			})
		}
	}
}

// wantAdopted checks that both pods run, once, and what ran before still does.
func wantAdopted(t *testing.T, l *lab, before map[string]string) {
	t.Helper()
	after := l.running()
	if want := []string{"other-board/c0", "web-board/server", "web-board/visitor"}; !slices.Equal(slices.Sorted(maps.Keys(after)), want) {
		t.Errorf("running after the restart: %v", after)
	}
	for name, id := range before {
		if now := after[name]; now != "" && now != id {
			t.Errorf("%s ran as %s and was restarted as %s", name, id, now)
		}
	}
	for _, p := range l.wanted {
		if st := l.status(p.UID); st.Phase != v1.PodRunning {
			t.Errorf("%s is %s", p.Name, st.Phase)
		}
	}
	ready := 0
	for _, s := range l.runtime.AllSandboxes() {
		if s.GetState() == runtimeapi.PodSandboxState_SANDBOX_READY {
			ready++
		}
	}
	if ready != 2 {
		t.Errorf("%d ready sandboxes for two pods", ready)
	}
}

func TestRestartTouchesNothing(t *testing.T) {
	bubble(t, func(t *testing.T, l *lab) {
		once := shell(t, "once", "Never", "exit 0")
		l.want(parse(t, webManifest)[0], once)
		l.start()
		l.settle(30 * time.Second)
		before, ids := l.changes(), l.running()
		for range 10 {
			l.kill()
			l.settle(time.Minute)
			l.start()
			l.settle(time.Minute)
		}
		if diff := cmp.Diff(ids, l.running()); diff != "" {
			t.Errorf("running containers changed (-before +after):\n%s", diff)
		}
		// The completed pod's dead sandbox is stopped again to be sure.
		if n := l.changes() - before - 10; n != 0 {
			t.Errorf("%d changes to the runtime by ten restarts", n)
		}
		if st := l.status(once.UID); st.Phase != v1.PodSucceeded {
			t.Errorf("the completed pod is %s after the restarts", st.Phase)
		}
	})
}

func TestIdleMinuteCosts(t *testing.T) {
	bubble(t, func(t *testing.T, l *lab) {
		var pods []*v1.Pod
		for i := range 10 {
			pods = append(pods, shell(t, fmt.Sprintf("p%d", i), "Always", "sleep infinity"))
		}
		l.want(pods...)
		l.start()
		l.settle(5 * time.Minute)
		before := len(l.runtime.Calls())
		l.settle(time.Hour)
		perMinute := float64(len(l.runtime.Calls())-before) / 60
		t.Logf("%.2f calls to the runtime in an idle minute with 10 pods", perMinute)
		if perMinute >= 5 {
			t.Errorf("%.2f calls in an idle minute, want fewer than 5", perMinute)
		}
	})
}

func TestManifestChanges(t *testing.T) {
	bubble(t, func(t *testing.T, l *lab) {
		old := shell(t, "web", "Always", "sleep infinity")
		other := shell(t, "other", "Always", "sleep infinity")
		l.want(old, other)
		l.start()
		l.settle(10 * time.Second)
		ids := l.running()
		edited := shell(t, "web", "Always", "sleep 1000000")
		l.want(edited, other)
		l.settle(10 * time.Second)
		now := l.running()
		if now["web-board/c0"] == "" || now["web-board/c0"] == ids["web-board/c0"] || now["other-board/c0"] != ids["other-board/c0"] {
			t.Errorf("before %v, after the edit %v", ids, now)
		}
		l.want()
		l.settle(10 * time.Second)
		if s, c := l.objects(); s+c != 0 {
			t.Errorf("%d sandboxes and %d containers are left of removed pods", s, c)
		}
		for _, dir := range []string{l.cfg.Paths.Pods, l.cfg.Paths.PodLogs, l.cfg.Paths.ContainerLogs} {
			if entries, _ := os.ReadDir(dir); len(entries) != 0 {
				t.Errorf("%s still has %v", dir, entries)
			}
		}
		if l.agent.statuses.List() != nil && len(l.agent.statuses.List()) != 0 {
			t.Errorf("statuses left: %v", l.agent.statuses.List())
		}
	})
}

// TestEditedManifestIsTheCurrentPod has a manifest edited, and edited back,
// while the pod of before takes its time to end: one of the two UIDs sorts
// first, and the current pod has each of them once.
func TestEditedManifestIsTheCurrentPod(t *testing.T) {
	bubble(t, func(t *testing.T, l *lab) {
		const slow = "trap '' TERM; sleep infinity"
		one, two := shell(t, "web", "Always", slow), shell(t, "web", "Always", slow+" ")
		for _, p := range []*v1.Pod{one, two} {
			p.Spec.TerminationGracePeriodSeconds = new(int64(30))
		}
		l.want(one)
		l.start()
		l.settle(10 * time.Second)
		current := func(want *v1.Pod) {
			t.Helper()
			entries, newest := 0, (*v1.Pod)(nil)
			for _, e := range l.agent.statuses.List() {
				if e.Pod.Name == want.Name {
					if entries++; newest == nil || pod.Newer(e.Pod, newest) {
						newest = e.Pod
					}
				}
			}
			if entries != 2 || newest.UID != want.UID {
				t.Errorf("of %d pods %v is the current one, want %s", entries, newest, want.UID)
			}
		}
		l.want(two)
		l.settle(5 * time.Second)
		current(two)
		l.settle(time.Minute)
		l.want(one)
		l.settle(5 * time.Second)
		current(one)
	})
}

func TestOrphansGoOnlyWhenSourcesAreReady(t *testing.T) {
	bubble(t, func(t *testing.T, l *lab) {
		gone := shell(t, "gone", "Always", "sleep infinity")
		l.want(gone)
		l.start()
		l.settle(10 * time.Second)
		l.kill()
		// An agent whose sources have said nothing yet.
		l.cfg.Kubelet.StaticPodURL = "http://127.0.0.1:1/"
		l.wanted = nil
		l.start()
		l.settle(time.Hour)
		if len(l.running()) != 1 {
			t.Fatalf("running before the sources are ready: %v", l.running())
		}
		l.agent.mux.Set(t.Context(), "http", source.PodSet{Partial: true})
		l.settle(time.Hour)
		if len(l.running()) != 1 {
			t.Fatalf("running while a part of a source is unread: %v", l.running())
		}
		l.agent.mux.Set(t.Context(), "http", source.PodSet{})
		l.settle(10 * time.Second)
		if s, c := l.objects(); s+c != 0 {
			t.Errorf("%d sandboxes and %d containers are left", s, c)
		}
	})
}

func TestRuntimeFaultsWhilePodsStart(t *testing.T) {
	for name, fault := range map[string]func(l *lab){
		"stopped":      func(l *lab) { l.runtime.Stop(); l.settle(10 * time.Minute); l.runtime.Start() },
		"restarted":    func(l *lab) { l.runtime.Restart() },
		"hung":         func(l *lab) { l.runtime.Hang(); l.settle(20 * time.Minute); l.runtime.Resume() },
		"stream lost":  func(l *lab) { l.runtime.Restart() },
		"events lost":  func(l *lab) { l.runtime.LoseEvents(20) },
		"rebooted":     func(l *lab) { l.runtime.Reboot() },
		"bare events":  func(l *lab) { l.runtime.BareEvents(true) },
		"some failing": func(l *lab) { l.runtime.Inject("*", fake.Fault{Err: container.ErrTimeout, Skip: 2, Times: 5}) },
	} {
		for _, after := range []time.Duration{0, 10 * time.Millisecond, 1100 * time.Millisecond, 5 * time.Second} {
			t.Run(fmt.Sprintf("%s after %v", name, after), func(t *testing.T) {
				bubble(t, func(t *testing.T, l *lab) {
					l.want(parse(t, webManifest)[0], shell(t, "other", "Always", "sleep infinity"))
					l.start()
					l.settle(after)
					fault(l)
					l.settle(15 * time.Minute)
					if got := l.running(); len(got) != 3 {
						t.Errorf("running in the end: %v", got)
					}
					if err := l.agent.pleg.Healthy(time.Now()); err != nil {
						t.Errorf("not healthy in the end: %v", err)
					}
				})
			})
		}
	}
}

func TestHealthTellsOfADeadRuntime(t *testing.T) {
	for name, fault := range map[string]func(l *lab){"stopped": func(l *lab) { l.runtime.Stop() }, "hung": func(l *lab) { l.runtime.Hang() }} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, l *lab) {
				l.want(shell(t, "web", "Always", "sleep infinity"))
				l.start()
				l.settle(10 * time.Minute)
				if err := l.agent.pleg.Healthy(time.Now()); err != nil {
					t.Fatalf("an idle runtime is not healthy: %v", err)
				}
				fault(l)
				l.settle(3 * time.Minute)
				if l.agent.pleg.Healthy(time.Now()) == nil {
					t.Error("healthy three minutes after the runtime died")
				}
			})
		})
	}
}

func TestImageProblems(t *testing.T) {
	bubble(t, func(t *testing.T, l *lab) {
		l.runtime.SetPull("localhost/late:1", fake.Pull{Err: errors.New("no such host"), Failures: 2})
		p := parse(t, strings.ReplaceAll(webManifest, "localhost/busybox:1", "localhost/late:1"))[0]
		never := shell(t, "never", "Always", "sleep infinity")
		never.Spec.Containers[0].Image = "localhost/absent:1"
		never.Spec.Containers[0].ImagePullPolicy = v1.PullNever
		bad := shell(t, "bad", "Always", "true")
		bad.Spec.Containers[0].Command = []string{"/no/such/program"}
		l.want(p, never, bad)
		l.start()
		l.settle(3 * time.Second)
		if w := l.status(p.UID).InitContainerStatuses[0].State.Waiting; w == nil || (w.Reason != "ErrImagePull" && w.Reason != "ImagePullBackOff") {
			t.Errorf("waiting: %+v", w)
		}
		if w := l.status(never.UID).ContainerStatuses[0].State.Waiting; w == nil || w.Reason != "ErrImageNeverPull" {
			t.Errorf("waiting: %+v", w)
		}
		l.settle(2 * time.Minute)
		if st := l.status(p.UID); st.Phase != v1.PodRunning {
			t.Errorf("once the image can be pulled the pod is %s", st.Phase)
		}
		st := l.status(bad.UID).ContainerStatuses[0]
		if st.State.Running != nil || st.RestartCount < 1 {
			t.Errorf("a command that does not exist: %+v", st)
		}
	})
}

// TestImageBackoffHoldsUpNobody has one container without an image beside one
// that crashes: the waits of the first do not prolong those of the second.
func TestImageBackoffHoldsUpNobody(t *testing.T) {
	bubble(t, func(t *testing.T, l *lab) {
		l.runtime.SetPull("localhost/absent:1", fake.Pull{Err: errors.New("no such host")})
		p := shell(t, "both", "Always", "sleep infinity", "exit 1")
		p.Spec.Containers[0].Image = "localhost/absent:1"
		l.cfg.Kubelet.CrashLoopBackOff.MaxContainerRestartPeriod = &metav1.Duration{Duration: 10 * time.Second}
		l.want(p)
		l.start()
		l.settle(time.Hour)
		// The pull waits five minutes by now, the crash loop ten seconds.
		if n := l.status(p.UID).ContainerStatuses[1].RestartCount; n < 300 {
			t.Errorf("%d restarts of the crashing container in an hour, want about 350", n)
		}
	})
}

func TestUnsupportedPodIsRejected(t *testing.T) {
	bubble(t, func(t *testing.T, l *lab) {
		p := shell(t, "odd", "Always", "sleep infinity")
		p.Spec.ResourceClaims = []v1.PodResourceClaim{{Name: "device"}}
		l.want(p, shell(t, "good", "Always", "sleep infinity"))
		l.start()
		l.settle(10 * time.Second)
		st := l.status(p.UID)
		if st.Phase != v1.PodFailed || !strings.Contains(st.Message, "spec.resourceClaims") {
			t.Errorf("status %+v", st)
		}
		if got := l.running(); len(got) != 1 {
			t.Errorf("running: %v", got)
		}
		if !slices.Contains(l.reasons(p.Name), "PodFeatureUnsupported") {
			t.Errorf("events: %v", l.reasons(p.Name))
		}
	})
}

// TestUnsupportedPodThatRunsIsLeftAlone is what a restart on a board does
// that another agent served before.
func TestUnsupportedPodThatRunsIsLeftAlone(t *testing.T) {
	bubble(t, func(t *testing.T, l *lab) {
		p := shell(t, "odd", "Always", "sleep infinity")
		l.want(p)
		l.start()
		l.settle(10 * time.Second)
		before := l.running()
		l.kill()
		p = p.DeepCopy()
		p.Spec.ResourceClaims = []v1.PodResourceClaim{{Name: "device"}}
		l.want(p)
		l.start()
		l.settle(time.Minute)
		if diff := cmp.Diff(before, l.running()); diff != "" {
			t.Errorf("running (-before +after):\n%s", diff)
		}
		if st := l.status(p.UID); st.Phase != v1.PodRunning {
			t.Errorf("it is %s", st.Phase)
		}
		calls := len(l.runtime.Calls())
		l.settle(time.Hour)
		if n := len(l.runtime.Calls()) - calls; n > 5*60 {
			t.Errorf("%d calls in an hour for a pod that is only watched", n)
		}
	})
}

// TestDiskFull stands a file where the pods' folder has to be, which fails as
// a full disk does; the real one is a board's test.
func TestDiskFull(t *testing.T) {
	bubble(t, func(t *testing.T, l *lab) {
		if err := os.WriteFile(l.cfg.Paths.Pods, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		p := parse(t, webManifest)[0]
		l.want(p)
		l.start()
		l.settle(time.Minute)
		if len(l.running()) != 0 || !slices.Contains(l.reasons(p.Name), "FailedMount") {
			t.Errorf("running %v, events %v", l.running(), l.reasons(p.Name))
		}
		if err := os.Remove(l.cfg.Paths.Pods); err != nil {
			t.Fatal(err)
		}
		l.settle(time.Minute)
		if len(l.running()) != 2 {
			t.Errorf("running once there is space: %v", l.running())
		}
	})
}
